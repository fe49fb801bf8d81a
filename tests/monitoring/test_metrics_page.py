"""``docs/metrics.md`` names what the services export, by Prometheus's rules."""

from __future__ import annotations

import re

import generate_metrics
import pytest
from conftest import ROOT
from prometheus_client.parser import text_string_to_metric_families

from edl_master.metrics.processes import CARRIED
from tests.monitoring.tools import promtool

PAGE = (ROOT / "docs" / "metrics.md").read_text()


@pytest.mark.parametrize("service", generate_metrics.expositions())
def test_promtool_finds_nothing_to_improve(service: str) -> None:
    assert promtool("check", "metrics", text=generate_metrics.expositions()[service]) == ""


def test_the_page_has_every_metric_with_type_labels_and_meaning() -> None:
    values = generate_metrics.known_values(PAGE)
    assert generate_metrics.document(values) == PAGE, "run ./dev generate"


def test_names_end_with_their_base_unit() -> None:
    names = re.findall(r"^\| `(\w+)` \|", PAGE, re.M)
    assert len(names) > 60
    for name in names:
        assert re.fullmatch(r"edl_[a-z]+(_[a-z]+)*", name), name
        assert not re.search(r"_(ms|millis|minutes|hours|kb|mb|percent)(_|$)", name), name


def test_the_master_carries_every_counter_of_a_worker() -> None:
    exported = {
        (sample.name, tuple(sorted(sample.labels)))
        for family in text_string_to_metric_families(generate_metrics.expositions()["worker"])
        if family.type in ("counter", "histogram")
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }
    assert exported == {(name, tuple(labels)) for name, labels in CARRIED.items()}


def test_every_metric_has_a_sample_of_a_real_run() -> None:
    rows = re.findall(r"^\| `(edl_\w+)` \|.*\| ([^|]*)\|$", PAGE, re.M)
    assert not {name for name, sample in rows if not sample.strip()}
