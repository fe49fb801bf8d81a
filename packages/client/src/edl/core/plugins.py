"""Finds what installed distributions add to edl, by name.

A missing, broken or ambiguous plugin is an error only for commands that use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from edl.core.problem import Problem, usage
from edl.entry_points import EntryPoint, find_entry_points

T = TypeVar("T")


class PlugIns(Mapping[str, T], Generic[T]):
    """The plug-ins of a group of entry points; each is imported when it is asked for.

    Args:
        group: of the entry points.
        what: one of these, for messages, such as ``platform``; the name follows.
        kind: the class of the objects.
        known: the names that edl documents, and the distribution that has each. They come first,
            are listed even if they are not installed, and belong to this distribution alone.
    """

    def __init__(self, group: str, what: str, kind: type[T], known: Mapping[str, str]) -> None:
        self._group = group
        self._what = what
        self._kind = kind
        self._known = known

    def __iter__(self) -> Iterator[str]:
        others = (entry.name for entry in find_entry_points(self._group))
        return iter(dict.fromkeys((*self._known, *others)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in list(iter(self))

    def __getitem__(self, name: str) -> T:
        """Return the object of a name.

        Raises:
            KeyError: nothing has this name.
            Problem: its distribution is not installed, it cannot be imported, it is something else,
                or several distributions have it.
        """
        entry = self._find(name)
        try:
            found = entry.load()
        except Exception as error:
            raise self._problem(entry, f"{type(error).__name__}: {error}") from error
        if not isinstance(found, self._kind):
            raise self._problem(entry, f"{entry.target} is no {self._kind.__name__}")
        return found

    def load_all(self) -> tuple[dict[str, T], dict[str, Problem]]:
        """Return what can be used, and what is wrong with the others that are installed."""
        usable: dict[str, T] = {}
        problems: dict[str, Problem] = {}
        installed = {entry.name for entry in find_entry_points(self._group)}
        for name in self:
            if name in installed:
                try:
                    usable[name] = self[name]
                except Problem as problem:
                    problems[name] = problem
        return usable, problems

    def _find(self, name: str) -> EntryPoint:
        found = [entry for entry in find_entry_points(self._group) if entry.name == name]
        if owner := self._known.get(name):
            found = [entry for entry in found if entry.distribution == owner]
            if not found:
                raise usage(
                    f"{self._describe(name)} needs {owner}, which is not installed",
                    remedy=f"pip install {owner}",
                )
        if not found:
            raise KeyError(name)
        if len(found) > 1:
            owners = " and ".join(entry.distribution for entry in found)
            raise usage(
                f"{self._describe(name)} is in {owners}",
                where=f"entry points of {self._group}",
                remedy="Uninstall all but one of them.",
            )
        return found[0]

    def _describe(self, name: str) -> str:
        return f"the {self._what} {name.replace('.', ' ')}"

    def _problem(self, entry: EntryPoint, reason: str) -> Problem:
        return usage(
            f"{self._describe(entry.name)} of {entry.distribution} {entry.version} does not work: "
            f"{reason}",
            where=f"entry point {entry.name} = {entry.target} of {entry.group}",
            remedy=f"Repair or update {entry.distribution}, or uninstall it.",
        )
