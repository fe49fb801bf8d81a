"""Names of jobs: the rules, and names for jobs that were given none."""

from __future__ import annotations

import re

MAX_LENGTH = 53
"""A DNS-1123 label has 63 characters; ten are left for what a platform appends."""

MAX_NAMESPACE_LENGTH = 63

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUFFIX_LENGTH = 4
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Attributes of a module that say nothing about the model.
_PLAIN = frozenset(("model", "custom_model", "create_model", "build_model"))


def find_fault(name: str, max_length: int = MAX_LENGTH) -> str | None:
    """Return why ``name`` cannot be a job's name, or None if it can.

    The rules are those of Kubernetes for labels, so that a job may run anywhere.
    """
    if not name:
        return "it is empty"
    if len(name) > max_length:
        return f"it has {len(name)} characters; the limit is {max_length}"
    if _LABEL.fullmatch(name):
        return None
    if re.search(r"[A-Z]", name):
        return "it has upper-case letters"
    if name.startswith("-") or name.endswith("-"):
        return "it begins or ends with a dash"
    return "only lower-case letters, digits and dashes are allowed"


def add_suffix(name: str, suffix: str) -> str:
    """Return a job's name with a word at its end, within the limit."""
    return f"{name[: MAX_LENGTH - len(suffix) - 1].rstrip('-')}-{suffix}"


def make_slug(text: str) -> str:
    """Return small letters, digits and single dashes made of any text; empty if nothing is left.

    ``MyKerasModel`` becomes ``my-keras-model``, ``mnist_functional_api``
    ``mnist-functional-api``.
    """
    return re.sub(r"[^a-z0-9]+", "-", _CAMEL.sub("-", text).lower()).strip("-")


def generate(subject: str, suffix: str) -> str:
    """Return a readable name for a job about ``subject``, such as ``regressor-dnn-3f2a``.

    Args:
        subject: any text.
        suffix: makes it unique; four small letters and digits.
    """
    stem = make_slug(subject)[: MAX_LENGTH - _SUFFIX_LENGTH - 1].strip("-") or "job"
    return f"{stem}-{suffix}"


def find_subject(model_def: str) -> str:
    """Return the name of a model: its module, and its own name if that is more than ``model``."""
    parts = [part for part in model_def.split(".") if part]
    if len(parts) > 1 and parts[-1] in _PLAIN:
        parts.pop()
    # A function or module is named alone; a class also by its module.
    kept = parts[-2:] if parts and parts[-1][:1].isupper() else parts[-1:]
    return "-".join(kept)


def suggest(name: str) -> str:
    """Return a valid name near ``name``."""
    return make_slug(name)[:MAX_LENGTH].strip("-") or "my-job"
