"""Errors that the core finds, with what, where and remedy."""

from __future__ import annotations


class Problem(Exception):
    """An error that prevents a command.

    Args:
        code: the name of one of ``edl.v1.ErrorCode``, such as ``USAGE``.
        what: one sentence.
        where: option, file and line, or setting.
        remedy: what the reader can do about it.
    """

    def __init__(self, code: str, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.where = where
        self.remedy = remedy


def usage(what: str, *, where: str = "", remedy: str = "") -> Problem:
    """Return the error for a wrong option, argument or setting."""
    return Problem("USAGE", what, where=where, remedy=remedy)
