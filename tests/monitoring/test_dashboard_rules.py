"""Grafana's dashboard-linter on the dashboards, and what it leaves out.

Of counters it looks at those without labels only, and of tables at nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

from tests.monitoring.queries import DASHBOARDS, dashboard, panels
from tests.monitoring.tools import dashboard_linter

PLACE = ROOT / "deploy" / "grafana"
EXCEPTIONS = yaml.safe_load((PLACE / ".lint").read_text())["exclusions"]

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


def lint(file: Path, config: Path = PLACE / ".lint") -> subprocess.CompletedProcess[str]:
    """Run Grafana's linter on a dashboard; its exit code is 0 if it has no objection."""
    return subprocess.run(
        [dashboard_linter(), "lint", "--strict", "--config", str(config), str(file)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("name", DASHBOARDS)
def test_grafana_s_linter_has_no_objection(name: str) -> None:
    done = lint(PLACE / f"{name}.json")
    assert done.returncode == 0, done.stdout


def test_grafana_s_linter_objects_to_what_is_wrong(tmp_path: Path) -> None:
    content = dashboard("fleet")
    next(panels(content))["description"] = ""
    (tmp_path / "wrong.json").write_text(json.dumps(content))
    done = lint(tmp_path / "wrong.json")
    assert done.returncode == 1
    assert "has missing title or description" in done.stdout


@pytest.mark.parametrize("rule", EXCEPTIONS)
def test_no_exception_is_there_for_nothing(rule: str, tmp_path: Path) -> None:
    fewer = {name: why for name, why in EXCEPTIONS.items() if name != rule}
    (tmp_path / ".lint").write_text(yaml.safe_dump({"exclusions": fewer}))
    ends = [lint(PLACE / f"{name}.json", tmp_path / ".lint").returncode for name in DASHBOARDS]
    assert 1 in ends


@pytest.mark.parametrize("name", DASHBOARDS)
def test_counters_are_shown_as_rates_or_the_exception_is_argued(name: str) -> None:
    plain = {
        panel["title"]
        for panel in panels(dashboard(name))
        for target in panel["targets"]
        if COUNTER.search(RATE.sub("", target["expr"]))
    }
    assert plain == {title for where, title in TOTALS if where == name}
