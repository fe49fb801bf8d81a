"""The rules for Prometheus are valid, fire when they should, and have runbooks."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT

from edl.core.exit_codes import PRESENTATIONS
from edl.core.options import BY_NAME
from tests.monitoring.queries import DASHBOARDS, dashboard, panels
from tests.monitoring.tools import find, promtool

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


@pytest.mark.parametrize("change_min", [-1, 1], ids=["sooner", "later"])
def test_alerts_are_tested_to_the_minute(change_min: int, tmp_path: Path) -> None:
    """Their tests fail if they wait for a minute less, or more."""
    waiting = {alert["alert"] for alert in alerts() if "for" in alert}
    text = (PLACE / "rules.yml").read_text()
    changed, count = re.subn(r"for: (\d+)m", lambda m: f"for: {int(m[1]) + change_min}m", text)
    assert count == len(waiting) >= 8
    (tmp_path / "rules.yml").write_text(changed)
    shutil.copy(PLACE / "rules_test.yml", tmp_path)
    command = [find("promtool"), "test", "rules", str(tmp_path / "rules_test.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert set(re.findall(r"alertname: ?(\w+)", done.stdout + done.stderr)) == waiting


def test_each_alert_has_a_runbook_that_names_it() -> None:
    for alert in alerts():
        page = ROOT / alert["annotations"]["runbook_url"]
        assert f"`{alert['alert']}`" in page.read_text(), page
    used = {ROOT / alert["annotations"]["runbook_url"] for alert in alerts()}
    assert set(RUNBOOKS.glob("*.md")) == used


def test_each_alert_is_really_caused_and_the_docs_say_how() -> None:
    names = [alert["alert"] for alert in alerts()]
    rows = re.findall(r"^\| \[`(Edl\w+)`\]", (ROOT / "docs" / "monitoring.md").read_text(), re.M)
    assert sorted(rows) == sorted(names)
    caused = set(
        re.findall(r'"(Edl\w+)"', Path(__file__).with_name("test_prometheus.py").read_text())
    )
    assert caused == set(names)


def test_runbooks_name_commands_options_and_metrics_that_exist() -> None:
    metrics = (ROOT / "docs" / "metrics.md").read_text()
    builder = get_help("edl_builder")
    flags = {option.flag for option in BY_NAME.values()}
    for page in RUNBOOKS.glob("*.md"):
        for code in re.findall(r"`([^`]+)`", page.read_text()):
            first, *words = code.split()
            if first == "edl":
                assert_command(words, page.name)
            elif first.startswith("--"):
                assert first in flags or first in builder, f"{page.name}: {code}"
            elif first.startswith("edl_"):
                assert f"`{first}`" in metrics, f"{page.name}: {code}"
            elif first.isupper() and "_" in first:
                assert first in PRESENTATIONS, f"{page.name}: {code}"


def assert_command(words: list[str], page: str) -> None:
    """Check that a command exists, with the options that are named."""
    plain = [word for word in words if word.islower() and not word.startswith("-")]
    verb = plain[: 2 if plain[:1] == ["data"] else 1]
    shown = get_help("edl", *verb)
    for option in (word for word in words if word.startswith("-")):
        assert option in shown, f"{page}: edl {' '.join(words)}"


@functools.cache
def get_help(module: str, *verb: str) -> str:
    command = [sys.executable, "-P", "-m", module, *verb, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, command
    return done.stdout


def test_runbooks_name_panels_that_the_dashboards_have() -> None:
    shown = [dashboard(name) for name in DASHBOARDS]
    titles = {each["title"] for content in shown for each in panels(content)}
    titles |= {row["title"] for content in shown for row in content["panels"]}
    for page in RUNBOOKS.glob("*.md"):
        for named in re.findall(r"(?<!\*)\*([A-Z][^*]+)\*", page.read_text()):
            assert named in titles, f"{page.name}: {named}"
