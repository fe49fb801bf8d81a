"""Pictures of the dashboards where there is no Grafana: their panels, drawn from their own JSON.

Prometheus answers the panels' queries, uPlot draws them, Chromium takes the picture.
``EDL_DASHBOARD_PICTURES=DIR pytest tests/monitoring/test_prometheus.py`` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conftest import ROOT
from page.browser import screenshot

from tests.monitoring.prometheus_server import Prometheus
from tests.monitoring.queries import dashboard, fill_variables, panels

_VENDOR = ROOT / "packages" / "master" / "src" / "edl_master" / "page" / "vendor"
_DRAW = Path(__file__).with_suffix(".js")
_WIDTH, _ROW_HEIGHT = 1600, 38
"""In CSS pixels; Grafana's rows of its grid are as high."""

_PAGE = """<!doctype html><meta charset="utf-8"><title>{title}</title>
<style>{uplot_css}
body {{ background: #111217; color: #ccccdc; font: 13px system-ui, sans-serif; margin: 16px }}
main {{ position: relative; width: {width}px; height: {height}px }}
section {{ position: absolute; background: #181b1f; border: 1px solid #2e3036; border-radius: 3px;
  overflow: hidden; padding: 6px 8px; box-sizing: border-box }}
h2 {{ font-size: 13px; font-weight: 600; margin: 0 0 2px }}
.row {{ background: none; border: 0; padding: 8px 0 }} .row h2 {{ font-size: 15px }}
.values {{ display: flex; justify-content: space-evenly; margin-top: 34px; text-align: center;
  font-size: 34px; color: #73bf69 }}
small {{ display: block; font-size: 12px; color: #8e8e99 }}
.u-legend {{ font-size: 11px; text-align: left; color: #ccccdc }}
.u-legend .u-value {{ display: none }}
table {{ border-collapse: collapse; width: 100% }} td, th {{ text-align: left; padding: 2px 8px }}
p {{ color: #8e8e99 }}
</style>
<h1>{title}</h1><p>{note}</p><main></main>
<script>{uplot}</script><script>const PANELS = {data}, MARKS = {marks};
{draw}</script>"""

_NOTE = (
    "Drawn by uPlot from the dashboard's JSON and the answers of Prometheus; Grafana's own look "
    "differs. The job is one of the tests, to which everything happens that there is an alert for."
)


def draw(prometheus: Prometheus, name: str, folder: Path) -> Path:
    """Write ``dashboard-NAME.png``, with what has happened since Prometheus has been started."""
    content = dashboard(name)
    found = [_row(panel) for panel in content["panels"] if panel["type"] == "row"]
    found += [_panel(prometheus, panel) for panel in panels(content)]
    marks = [
        {"color": mark["iconColor"], "times": _begins(prometheus, fill_variables(mark["expr"]))}
        for mark in content["annotations"].get("list") or ()
    ]
    bottom = max(panel["at"]["y"] + panel["at"]["h"] for panel in found)
    page = _PAGE.format(
        title=content["title"],
        note=_NOTE,
        width=_WIDTH,
        height=bottom * _ROW_HEIGHT,
        uplot=(_VENDOR / "uPlot.iife.min.js").read_text(),
        uplot_css=(_VENDOR / "uPlot.min.css").read_text(),
        data=_script(found),
        marks=_script(marks),
        draw=_DRAW.read_text(),
    )
    written, picture = folder / f"dashboard-{name}.html", folder / f"dashboard-{name}.png"
    written.write_text(page)
    try:
        width, height = _WIDTH + 32, bottom * _ROW_HEIGHT + 120
        screenshot(written.as_uri(), picture, width, height, dark=True, full_page=True)
    finally:
        written.unlink()
    return picture


def _row(panel: Mapping[str, Any]) -> dict[str, Any]:
    return {"title": panel["title"], "kind": "row", "at": panel["gridPos"]}


def _panel(prometheus: Prometheus, panel: Mapping[str, Any]) -> dict[str, Any]:
    series = [
        {"name": _legend(target["legendFormat"], labels), "labels": labels, "points": points}
        for target in panel["targets"]
        for labels, points in prometheus.series(fill_variables(target["expr"]))
        if points
    ]
    return {
        "title": panel["title"],
        "kind": panel["type"],
        "at": panel["gridPos"],
        "unit": panel["fieldConfig"]["defaults"].get("unit", "none"),
        "series": series,
    }


def _legend(form: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), form).strip()


def _begins(prometheus: Prometheus, query: str) -> list[float]:
    """Where a query becomes other than zero."""
    begins = []
    for _, points in prometheus.series(query):
        before = 0.0
        for at, value in points:
            if value and not before:
                begins.append(at)
            before = value
    return sorted(begins)


def _script(value: object) -> str:
    return json.dumps(value).replace("</", "<\\/")
