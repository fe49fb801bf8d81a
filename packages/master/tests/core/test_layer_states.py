"""All workers of a job have the same state in the layers of the model, or are refused by name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from joined_job import SETTINGS

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_master.core.job import JobStateMachine
from edl_master.core.layer_states import AgreedLayerStates, LayerSummary

CITY = LayerSummary("StringLookup city", "shops.py:9", "1f")
PRICE = LayerSummary("Normalization price", "shops.py:11", "2a", (5.8, 0.15))


def test_other_workers_are_compared_with_the_first() -> None:
    states = AgreedLayerStates()
    assert states.describe((CITY, PRICE)) is None
    assert states.describe((PRICE, CITY)) is None
    failure = states.describe((replace(CITY, digest="2f"), PRICE))
    assert failure is not None
    assert failure.code == "MODEL_CONTRACT"
    assert failure.what.startswith("StringLookup city (shops.py:9) has another state")
    assert "edl resume" in failure.remedy


@pytest.mark.parametrize(
    ("states", "named"),
    [
        ((CITY,), "Normalization price (shops.py:11)"),
        ((), "StringLookup city (shops.py:9), Normalization price (shops.py:11) have"),
        ((CITY, PRICE, LayerSummary("Hash h", "", "3")), "Hash h has"),
        ((CITY, replace(PRICE, numbers=(5.8, 0.16))), "Normalization price"),
        ((CITY, replace(PRICE, numbers=(5.8,))), "Normalization price"),
    ],
)
def test_what_differs_is_named(states: tuple[LayerSummary, ...], named: str) -> None:
    agreed = AgreedLayerStates()
    agreed.describe((CITY, PRICE))
    failure = agreed.describe(states)
    assert failure is not None
    assert failure.what.startswith(named)


def test_last_digits_and_other_lines_are_no_difference() -> None:
    agreed = AgreedLayerStates()
    agreed.describe((CITY, PRICE))
    other = replace(PRICE, numbers=(5.8000003, 0.15000001))
    assert agreed.describe((replace(CITY, place="shops.py:10"), other)) is None


FILE = LayerSummary("file /data/scale.txt", "shops.py:3", "7c", optional=True)


def test_an_optional_state_is_compared_with_workers_that_have_it() -> None:
    agreed = AgreedLayerStates("v1")
    assert agreed.describe((CITY,)) is None
    assert agreed.describe((CITY, FILE)) is None, "the first worker did not have it"
    assert agreed.describe((CITY,)) is None
    failure = agreed.describe((CITY, replace(FILE, digest="8d")))
    assert failure is not None
    assert failure.what.startswith("file /data/scale.txt (shops.py:3) has another state")


@pytest.mark.parametrize(("code", "refused"), [("v1", True), ("v2", False)])
def test_new_code_may_have_other_optional_states(code: str, refused: bool) -> None:
    before = AgreedLayerStates("v1")
    before.describe((CITY, FILE))
    saved = json.loads(json.dumps({"layer_states": before.snapshot()}))
    after = AgreedLayerStates(code)
    after.restore(saved)
    failure = after.describe((CITY, replace(FILE, digest="8d")))
    assert (failure is not None) == refused
    other = AgreedLayerStates(code)
    other.restore(saved)
    assert other.describe((replace(CITY, digest="2f"), FILE)) is not None, "never optional"


def test_states_of_a_snapshot_of_an_earlier_version_hold() -> None:
    agreed = AgreedLayerStates("v1")
    agreed.restore({"layer_states": [["StringLookup city", "shops.py:9", "1f", []]]})
    assert agreed.describe((CITY,)) is None
    assert agreed.describe((replace(CITY, digest="2f"),)) is not None


def _begin(job: JobStateMachine, states: tuple[LayerSummary, ...]) -> list[fx.Effect]:
    job.handle(ev.Tick(), 0.0)
    job.handle(ev.WorkerRegistered(WorkerId(0), InstanceId("0a"), "host", 1), 0.0)
    return job.handle(ev.WorkerReady(WorkerId(0), InstanceId("0a"), layer_states=states), 0.0)


def test_a_job_that_continues_compares_with_its_beginning() -> None:
    job = JobStateMachine(SETTINGS, (8,))
    _begin(job, (CITY, PRICE))
    assert not job.view(0.0).failure
    saved = json.loads(json.dumps(job.snapshot()))

    same = JobStateMachine.restore(SETTINGS, (8,), (), saved)
    _begin(same, (CITY, PRICE))
    assert not same.view(0.0).failure

    other = JobStateMachine.restore(SETTINGS, (8,), (), saved)
    _begin(other, (replace(CITY, digest="2f"), PRICE))
    failure = other.view(0.0).failure
    assert failure is not None
    assert "StringLookup city" in failure.what

    del saved["layer_states"]  # of an earlier version
    _begin(JobStateMachine.restore(SETTINGS, (8,), (), saved), (CITY,))
