"""Names of what a job puts where its output goes, which master and worker both know."""

from __future__ import annotations

TRAINED_MODEL = "trained_model.pb"
"""Describes a trained model and is the last of it to be written: a directory with it is whole."""
