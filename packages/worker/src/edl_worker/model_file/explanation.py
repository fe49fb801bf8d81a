"""What an exception of a model file means."""

from __future__ import annotations

from dataclasses import dataclass

ADAPT = (
    "Call its adapt(...) with the data where the model file creates it, before anything uses it "
    "(docs/model-file.md shows how)."
)
"""What to do about a layer that takes its state from data, and has none."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The meaning of an exception.

    Attributes:
        remedy: what the user should do.
        meaning: what the class or the model does, instead of the message; empty if that is clear.
        message: a clearer one than the exception's; empty if there is none.
    """

    remedy: str
    meaning: str = ""
    message: str = ""
