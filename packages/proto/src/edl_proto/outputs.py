"""Names of what a job puts where its output goes, which master and worker both know."""

from __future__ import annotations

TRAINED_MODEL = "trained_model.pb"
"""Describes a trained model and is the last of it to be written: a directory with it is whole."""


def note_beside(place: str) -> str:
    """Where the name of a job lies while it writes to this place in a store.

    A store has no atomic renaming of many objects. If the writer is killed, its job knows by this
    note that what is there is its own, and incomplete.
    """
    parent, _, name = place.rstrip("/").rpartition("/")
    return f"{parent}/.{name}.edl-job"
