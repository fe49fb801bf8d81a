"""Every query of the dashboards and the rules, as Prometheus is asked it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml
from conftest import ROOT

DASHBOARDS = ("job", "fleet", "builder")


def dashboard(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / f"{name}.json").read_text())
    return found


def panels(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the panels of a dashboard that have queries: not the titles of rows."""
    for panel in content["panels"]:
        if panel["type"] == "row":
            yield from panels({"panels": panel.get("panels") or []})
        else:
            yield panel


def all_queries() -> Iterator[tuple[str, str]]:
    """Yield each query of a dashboard or recording rule with its place, at variables' defaults.

    Alerts are left out: an alert has data only when it fires.
    """
    for name in DASHBOARDS:
        content = dashboard(name)
        for panel in panels(content):
            for target in panel["targets"]:
                yield (
                    f"{name}: {panel['title']} {target['legendFormat']}",
                    fill_variables(target["expr"]),
                )
        for mark in content["annotations"].get("list") or ():
            yield f"{name}: {mark['name']}", fill_variables(mark["expr"])
        for variable in content["templating"].get("list") or ():
            if variable["type"] == "query":
                query = variable["query"].removeprefix("label_values(").rpartition(",")[0]
                yield f"{name}: ${variable['name']}", fill_variables(query)
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                yield f"rule: {rule['record']}", rule["expr"]


def fill_variables(expr: str) -> str:
    """Return a query in which Grafana's variables have their defaults."""
    for name, value in (("$__rate_interval", "1m"), ("$namespace", ".*"), ("$job", ".*")):
        expr = expr.replace(name, value)
    return expr.replace("$role", ".*")
