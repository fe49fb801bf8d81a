"""Decides whether the code that a trained model carries may run here."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from edl.core.problem import Problem
from edl_runtime.image_names import pinned_name

_NAME = re.compile(r"[a-z0-9][a-z0-9._:/-]*")


def check_image(image: str, repositories: Iterable[str], *, where: str, accepted: bool) -> None:
    """Check the image that a trained model names, and that its master and workers would run.

    Args:
        repositories: those whose images may be run, and those below them; empty names are ignored.
        where: the trained model.
        accepted: the user trusts the model.

    Raises:
        Problem: FORBIDDEN.
    """
    name = pinned_name(image)
    if not _NAME.fullmatch(name):
        raise _forbidden(
            f"the trained model names the image {image!r}, which is not pinned by a digest",
            where,
            "Name an image with --image.",
        )
    if accepted or any(_is_within(name, each) for each in repositories):
        return
    raise _forbidden(
        f"the trained model names the image {image}, which would run with your rights",
        where,
        f"If you trust its author: --trust-model, or --trusted-images {name} (also in"
        " edl.toml) for all models with images of this repository. --image names another image.",
    )


def check_owners(owners: Collection[int], user: int, *, where: str, accepted: bool) -> None:
    """Check that no other user of the machine but root can have written a trained model's code.

    Args:
        owners: numbers of the users to whom its files belong.
        user: number of the user who runs the command.

    Raises:
        Problem: FORBIDDEN.
    """
    others = sorted(set(owners) - {user, 0})
    if accepted or not others:
        return
    raise _forbidden(
        f"the trained model belongs to another user (number {others[0]}), and its code would run"
        " with your rights",
        where,
        "If you trust this user: --trust-model.",
    )


def _is_within(name: str, repository: str) -> bool:
    return bool(repository) and f"{name}/".startswith(f"{repository.rstrip('/')}/")


def _forbidden(what: str, where: str, remedy: str) -> Problem:
    return Problem("FORBIDDEN", what, where=where, remedy=remedy)
