"""The rules for Prometheus are valid, fire when they should, and have runbooks."""

from __future__ import annotations

import re
from typing import Any

import yaml
from conftest import ROOT

from tests.monitoring.queries import DASHBOARDS, dashboard, panels
from tests.monitoring.tools import promtool

PLACE = ROOT / "deploy" / "prometheus"
RUNBOOKS = ROOT / "docs" / "runbooks"


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((PLACE / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def test_promtool_takes_the_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(PLACE / "rules.yml"))


def test_each_alert_fires_when_it_should_and_not_before() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(PLACE / "rules_test.yml"))
    tested = set(re.findall(r"alertname: (\w+)", (PLACE / "rules_test.yml").read_text()))
    assert tested == {alert["alert"] for alert in alerts()}


def test_each_alert_has_a_runbook_that_names_it() -> None:
    for alert in alerts():
        page = ROOT / alert["annotations"]["runbook_url"]
        assert f"`{alert['alert']}`" in page.read_text(), page
    used = {ROOT / alert["annotations"]["runbook_url"] for alert in alerts()}
    assert set(RUNBOOKS.glob("*.md")) == used


def test_runbooks_name_panels_that_the_dashboards_have() -> None:
    shown = [dashboard(name) for name in DASHBOARDS]
    titles = {each["title"] for content in shown for each in panels(content)}
    titles |= {row["title"] for content in shown for row in content["panels"]}
    for page in RUNBOOKS.glob("*.md"):
        for named in re.findall(r"(?<!\*)\*([A-Z][^*]+)\*", page.read_text()):
            assert named in titles, f"{page.name}: {named}"
