"""Options of the predictions that a job writes."""

from __future__ import annotations

from dataclasses import dataclass

from edl.core.options.option import PREDICT, Option, declare
from edl.core.options.value_types import Choice, Names

FORMATS = ("recordio", "csv", "parquet", "jsonl")
"""Formats of predictions. Each is also the suffix of its files."""

_OTHERS = frozenset({"json", "tsv", "txt", "xls", "xlsx", "arrow", "feather", "orc", "npy", "npz"})
"""Suffixes of other formats for tables. A user who writes one does not mean a folder."""


def other_suffix(output: str) -> str:
    """Return the suffix of an output that names a format which predictions cannot have."""
    suffix = output.rpartition("/")[2].rpartition(".")[2]
    known = suffix.lower() in _OTHERS or suffix.lower() in FORMATS
    return suffix if known and suffix not in FORMATS else ""


def format_of(output: str) -> str:
    """Return the format that the name of an output tells; empty if it tells none."""
    suffix = output.rpartition("/")[2].rpartition(".")[2]
    return suffix if suffix in FORMATS else ""


@dataclass(frozen=True, kw_only=True)
class PredictionOptions:
    """The options that say what a prediction job writes for each record, and how."""

    format: str = declare(
        Option(
            Choice(FORMATS),
            "Format of the predictions.",
            "csv",
            default_text="by the suffix of --output, else recordio",
            verbs=PREDICT,
            spec="prediction.format",
        )
    )
    keep: tuple[str, ...] = declare(
        Option(
            Names(),
            "Columns or features of the records to copy next to the predictions.",
            "id,name",
            default=(),
            verbs=PREDICT,
            spec="prediction.keep",
        )
    )
    postprocess: str = declare(
        Option(
            Choice(("argmax", "sigmoid", "softmax")),
            "Function to apply to the outputs of the model, along their last dimension.",
            "argmax",
            default_text="none",
            verbs=PREDICT,
            spec="prediction.postprocess",
        )
    )
