"""Names of what a job puts where its output goes, which client, master and worker know."""

from __future__ import annotations

TRAINED_MODEL = "trained_model.pb"
"""Describes a trained model and is the last of it to be written: a directory with it is whole."""

MODEL_ZOO = "model_zoo"
"""The folder of a trained model with its own copy of its code."""


def check_zoo(named: str) -> None:
    """Check which folder a description names as its model zoo: the model's own copy, or nothing.

    A trained model may come from anywhere. Another folder would be code of this machine, or files
    of its user that are packed into an image.

    Raises:
        ValueError: it is another one; the message has the name.
    """
    if named not in ("", MODEL_ZOO):
        raise ValueError(f"it names {named!r} as its model zoo, which is not its own {MODEL_ZOO}")
