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
    """Those that ask something: not the titles of rows."""
    for panel in content["panels"]:
        if panel["type"] == "row":
            yield from panels({"panels": panel.get("panels") or []})
        else:
            yield panel


def all_queries() -> Iterator[tuple[str, str]]:
    """Where a query is, and the query with Grafana's variables as they are left alone.

    Those of dashboards and recording rules. An alert has data when it fires, and is another matter.
    """
    for name in DASHBOARDS:
        content = dashboard(name)
        for panel in panels(content):
            for target in panel["targets"]:
                yield f"{name}: {panel['title']} {target['legendFormat']}", filled(target["expr"])
        for mark in content["annotations"].get("list") or ():
            yield f"{name}: {mark['name']}", filled(mark["expr"])
        for variable in content["templating"].get("list") or ():
            if variable["type"] == "query":
                query = variable["query"].removeprefix("label_values(").rpartition(",")[0]
                yield f"{name}: ${variable['name']}", filled(query)
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                yield f"rule: {rule['record']}", rule["expr"]


def filled(expr: str) -> str:
    """A query with the variables as they are left alone."""
    for name, value in (("$__rate_interval", "1m"), ("$namespace", ".*"), ("$job", ".*")):
        expr = expr.replace(name, value)
    return expr.replace("$role", ".*")
