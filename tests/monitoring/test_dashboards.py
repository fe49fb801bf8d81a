"""The dashboards are what their program writes, and complete for a reader."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from conftest import ROOT

from tests.monitoring.queries import DASHBOARDS, dashboard, panels


def test_the_json_is_what_the_program_writes() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "deploy" / "grafana" / "write.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_panel_says_what_it_shows(name: str) -> None:
    content: dict[str, Any] = dashboard(name)
    assert content["uid"] == f"edl-{name}"
    variables = [each["name"] for each in content["templating"]["list"]]
    assert variables[:2] == ["datasource", "namespace"]
    found = list(panels(content))
    assert len(found) >= 12
    assert len({panel["title"] for panel in found}) == len(found)
    for panel in found:
        title = panel["title"]
        assert panel["description"], title
        assert panel["fieldConfig"]["defaults"]["unit"], title
        assert panel["datasource"]["uid"] == "$datasource", title
        for target in panel["targets"]:
            assert "$namespace" in target["expr"] or "ALERTS" in target["expr"], title
            assert target["legendFormat"].strip(), title
            assert (target.get("datasource") or panel["datasource"])["uid"] == "$datasource", title
        references = [target["refId"] for target in panel["targets"]]
        assert references, title
        assert len(set(references)) == len(references), title
