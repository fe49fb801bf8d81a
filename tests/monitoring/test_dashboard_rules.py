"""Rules modelled on those of Grafana's dashboard-linter, checked by a test of ours.

The linter itself cannot be installed everywhere. Rules are named as it names them. Exceptions, with
their reasons, of which ``deploy/grafana/.lint`` has the first:

- ``template-job-rule``, ``template-instance-rule``, ``target-job-rule``, ``target-instance-rule``:
  ``job`` and ``instance`` of Prometheus are not what a reader chooses by. The port of a job changes
  when the job is resumed, so queries select by ``namespace``, and by ``edl_job`` where series are
  of jobs.
- ``template-datasource-rule`` asks for the label "Prometheus data source": ours is "Data source",
  as there is one kind of source.
- ``target-promql-rule`` is left to ``test_prometheus.py``, where Prometheus evaluates each query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.monitoring.queries import DASHBOARDS, dashboard, panels

COUNTER = re.compile(r"\b(edl_\w+_(?:total|sum|count|bucket))\b")
RATE = re.compile(r"\b(?:rate|irate|increase)\([^\[\]]*\[([^\]]+)\]\)")

TOTALS = {
    ("builder", "Failures"): "builds fail seldom: how many is what a reader asks",
    ("builder", "Steps from the cache"): "the share since the start of the builder",
    ("builder", "Refusals"): "builds are refused seldom: how many is what a reader asks",
    ("builder", "Taken up again"): "happens at a start only: a rate would be nothing",
    ("job", "Dead letters"): "data that is lost stays lost: the number counts, not the rate",
    ("fleet", "Dead letters"): "data that is lost stays lost: the number counts, not the rate",
}
"""Panels that show a counter without a rate, and why."""


def targets(name: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for panel in panels(dashboard(name)):
        for target in panel["targets"]:
            yield panel["title"], panel, target


def plain_counters(expr: str) -> list[str]:
    """Counters in a query outside of rates."""
    return COUNTER.findall(RATE.sub("", expr))


@pytest.mark.parametrize("name", DASHBOARDS)
def test_template_datasource_rule(name: str) -> None:
    first, *others = dashboard(name)["templating"]["list"]
    assert (first["name"], first["type"], first["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    for variable in others:
        assert variable["datasource"]["uid"] == "$datasource", variable["name"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_template_on_time_change_reload_rule(name: str) -> None:
    for variable in dashboard(name)["templating"]["list"]:
        assert variable["type"] != "query" or variable["refresh"] == 2, variable["name"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_uneditable_dashboard_rule(name: str) -> None:
    assert dashboard(name)["editable"] is False


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panel_rules(name: str) -> None:
    """Title and description, unit, data source by the variable, something to show."""
    for panel in panels(dashboard(name)):
        title = panel["title"].strip()
        assert title
        assert panel["description"].strip(), title
        assert panel["fieldConfig"]["defaults"]["unit"], title
        assert panel["datasource"]["uid"] == "$datasource", title
        assert panel["targets"], title
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references), title


@pytest.mark.parametrize("name", DASHBOARDS)
def test_target_rate_interval_rule(name: str) -> None:
    for title, _, target in targets(name):
        ranges = re.findall(r"\[([^\]]+)\]", target["expr"])
        assert set(ranges) <= {"$__rate_interval"}, title


@pytest.mark.parametrize("name", DASHBOARDS)
def test_target_counter_agg_rule(name: str) -> None:
    """Counters are shown as rates, or the exception is argued."""
    plain = {title for title, _, target in targets(name) if plain_counters(target["expr"])}
    assert plain == {title for where, title in TOTALS if where == name}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_target_selector_and_legend(name: str) -> None:
    for title, panel, target in targets(name):
        expr = target["expr"]
        assert expr.count("(") == expr.count(")"), title
        assert expr.count("{") == expr.count("}"), title
        assert target["legendFormat"].strip(), title
        assert (target.get("datasource") or panel["datasource"])["uid"] == "$datasource", title
