"""The rules of ``deploy/prometheus``, with their times shortened, so that a test can wait for them.

Nothing else changes: expressions, thresholds and labels are those of the file.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_UNIT_S = {"s": 1, "m": 60, "h": 3600}
_OTHERS = {"EdlCheckpointOld": 1 / 2000}
"""Alerts whose windows are too long for the common factor."""


def shorten(rules: str, window: float, wait: float) -> str:
    """The rules as a file of their own, to be loaded beside the real ones.

    Args:
        rules: text of the file.
        window: factor for the windows of expressions and for ages.
        wait: factor for how long a condition must hold, ``for``.

    Returns:
        Their text. Recording rules begin with ``shortened:`` instead of ``edl:``, and alerts have
        the label ``shortened``.
    """
    content: dict[str, Any] = yaml.safe_load(rules)
    for group in content["groups"]:
        group["name"] += "-shortened"
        for rule in group["rules"]:
            factor = _OTHERS.get(rule.get("alert", ""), window)
            rule["expr"] = _shorter(rule["expr"], factor).replace("edl:", "shortened:")
            if "record" in rule:
                rule["record"] = rule["record"].replace("edl:", "shortened:")
            else:
                rule["labels"]["shortened"] = "yes"
            if "for" in rule:
                rule["for"] = _duration(rule["for"], wait)
    return yaml.safe_dump(content, sort_keys=False)


def _shorter(expr: str, factor: float) -> str:
    expr = re.sub(r"\[(\w+)\]", lambda found: f"[{_duration(found[1], factor)}]", expr)
    return re.sub(
        r"(\d+) \* (60|3600)\b",
        lambda found: f"{int(found[1]) * int(found[2]) * factor:g}",
        expr,
    )


def _duration(text: str, factor: float) -> str:
    seconds = int(text[:-1]) * _UNIT_S[text[-1]]
    return f"{max(1, round(seconds * factor * 1000))}ms"
