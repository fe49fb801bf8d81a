"""Versions kept under a name, so that an evaluation reads one model that existed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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


def find_slot(slots: Mapping[str, Arenas], name: str) -> Arenas | None:
    """Return a slot of the optimizer that is read as frozen values are, by ``slots/NAME``.

    Unlike those it changes with each update. Without ``NAME`` no slot is meant, only the version.

    Args:
        slots: of all rules; those of whole variables have a layout of their own.
        name: what is to be read.

    Returns:
        Its trainable arenas; None if the name is none of a slot.

    Raises:
        KeyError: there is no such slot in the layout of the values.
    """
    kind, separator, slot = name.partition("/")
    if kind != "slots" or not separator:
        return None
    if slot and (slot not in slots or "/" in slot):
        raise KeyError(f"the optimizer has no slot {slot!r}")
    return slots[slot] if slot else {}
