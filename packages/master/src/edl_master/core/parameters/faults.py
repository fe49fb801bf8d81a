"""What is wrong with a model's variables and tables."""

from __future__ import annotations


class LayoutError(ValueError):
    """The variables of a model cannot be laid out; the message names the variable."""
