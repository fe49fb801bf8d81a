"""Versions kept under a name, so that an evaluation reads one model that existed."""

from __future__ import annotations

from edl_master.core.names import Version
from edl_master.core.parameters.layout import ArenaKey, Arenas, Array


class FrozenVersions:
    """Values that no longer change, by name.

    Whole copies for now. Sharing memory with the living values would be a matter of this class
    alone.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Version, dict[ArenaKey, Array]]] = {}

    def keep(self, name: str, version: Version, values: Arenas) -> Version:
        """Keep ``values`` under ``name`` unless there are some; return the version kept there."""
        if name not in self._kept:
            self._kept[name] = version, {key: array.copy() for key, array in values.items()}
        return self._kept[name][0]

    def get(self, name: str) -> tuple[Version, Arenas]:
        """The version and values kept under ``name``.

        Raises:
            KeyError: there are none.
        """
        if name not in self._kept:
            raise KeyError(f"no parameters are frozen under the name {name!r}")
        return self._kept[name]

    def release(self, name: str) -> bool:
        """Forget what is kept under ``name``; say whether there was something."""
        return self._kept.pop(name, None) is not None

    def names(self) -> tuple[str, ...]:
        return tuple(self._kept)
