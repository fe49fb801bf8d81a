"""Options of ElasticDL that the command line understands."""

from __future__ import annotations

from conftest import Attempt, Edl, assert_told


def test_a_strategy_has_the_name_of_elasticdl(attempt: Attempt, edl: Edl) -> None:
    job = edl.job("--dry-run", "--distribution_strategy", "AllreduceStrategy")
    assert "REPLICATED" in attempt(*job).out
    refused = attempt(*job, "--local_steps=2")
    assert_told(refused, 2, "--local-steps cannot be combined with --strategy allreduce")
    other = attempt("evaluate", "--distribution-strategy", "Local")
    assert_told(other, 2, "edl evaluate has no option --strategy", "belongs to edl train")
