"""The error of a model whose variables or tables cannot be laid out."""

from __future__ import annotations


class LayoutError(ValueError):
    """The variables of a model cannot be laid out; the message names the variable."""
