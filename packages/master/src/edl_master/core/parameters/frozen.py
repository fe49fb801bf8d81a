"""Versions kept under a name, so that an evaluation reads one model that existed."""

from __future__ import annotations

from collections.abc import Callable

from edl_master.core.identifiers import Version
from edl_master.core.parameters.layout import ArenaKey, Arenas, Array
from edl_master.core.parameters.tables.group import RowsView


class FrozenVersions:
    """Values that no longer change, by name.

    Of dense values these are whole copies; rows of tables share memory with the living ones
    until those change.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Version, dict[ArenaKey, Array], RowsView]] = {}

    def keep(
        self, name: str, version: Version, values: Arenas, take_view: Callable[[], RowsView]
    ) -> None:
        """Keep ``values`` and rows under ``name`` unless there are some."""
        if name not in self._kept:
            copies = {key: array.copy() for key, array in values.items()}
            self._kept[name] = version, copies, take_view()

    def get(self, name: str) -> tuple[Version, Arenas, RowsView]:
        """Return the version, values and rows kept under ``name``.

        Raises:
            KeyError: there are none.
        """
        if name not in self._kept:
            raise KeyError(f"no parameters are frozen under the name {name!r}")
        return self._kept[name]

    def release(self, name: str) -> None:
        """Forget what is kept under ``name``, if there is something."""
        self._kept.pop(name, None)
