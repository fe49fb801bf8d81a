"""Results for programs: one JSON object, or YAML."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from typing import Any


class Format(StrEnum):
    """The values of ``-o``."""

    JSON = "json"
    YAML = "yaml"
    WIDE = "wide"
    NAME = "name"

    @property
    def is_structured(self) -> bool:
        return self in (Format.JSON, Format.YAML)


def dump(value: Any, form: Format) -> str:
    """Return a value of dictionaries, lists, texts and numbers as text; NaN becomes null."""
    finite = _finite(value)
    if form is Format.YAML:
        import yaml

        text: str = yaml.safe_dump(finite, sort_keys=False, allow_unicode=True)
        return text.rstrip("\n")
    return json.dumps(finite, indent=2, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {str(key): _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value
