"""A snapshot of the parameter plane: plain values and named arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from edl_master.core.parameters.copy_on_write import CopyOnWriteView
from edl_master.core.parameters.layout import Array, Layout
from edl_master.core.parameters.modes import UpdateMode, describe
from edl_master.core.parameters.optimizers import OTHERS, Optimizer
from edl_master.core.parameters.tables.row_chunks import OwnedRows, RowsChunk

FORMAT = 1

Stored: TypeAlias = Array | CopyOnWriteView | RowsChunk | OwnedRows
"""An array, or an object that becomes one when it is written."""


class SnapshotError(ValueError):
    """A snapshot does not fit the model, optimizer or mode that it is to be restored with."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state of ledger and store, apart from frozen versions and step permits.

    Attributes:
        meta: plain values that JSON can hold.
        arrays: flat arrays by name: ``values/trainable/float32``,
            ``slots/momentum/trainable/float32``, ``accumulated/gradient/trainable/float32``. Those
            of a living plane are copy-on-write views; rows of embedding tables come in chunks,
            ``tables/0/rows/0``. Both become arrays when they are written.
    """

    meta: dict[str, Any]
    arrays: dict[str, Stored]

    def layout(self) -> Layout:
        """Return the layout of the arrays.

        Raises:
            SnapshotError: the snapshot is of a format that is not known here.
        """
        if self.meta.get("format") != FORMAT:
            raise SnapshotError(
                f"the snapshot has format {self.meta.get('format')!r}; this master reads {FORMAT}"
            )
        tables = [table["spec"] for table in self.meta.get("tables", ())]
        return Layout.from_description(self.meta["layout"], tables)

    def check(self, layout: Layout | None, optimizer: Optimizer, mode: UpdateMode) -> None:
        """Make sure that training can continue with these.

        An optimizer may have other settings than it had, but must be of the same class, and so
        must each of several.

        Raises:
            SnapshotError: it cannot; the message says what differs.
        """
        if layout is not None and (difference := self.layout().mismatch(layout)):
            raise SnapshotError(f"the snapshot is of another model: {difference}")
        described = self.meta["optimizer"]
        kinds = [each["class_name"] for each in (described, *described.get(OTHERS, ()))]
        present = ", ".join(each.name for each in optimizer.each)
        if (saved := ", ".join(kinds)) != present:
            raise SnapshotError(
                f"the snapshot was trained with {saved}, whose state {present} cannot use"
            )
        if self.meta["accumulated"] and self.meta["mode"] != describe(mode):
            raise SnapshotError(
                f"the snapshot holds {self.meta['accumulated']} gradients accumulated under "
                f"{self.meta['mode']}; continue in the same mode, not in {describe(mode)}"
            )

    def fill(self, targets: Iterable[tuple[str, Array]]) -> None:
        """Copy the arrays into those of the same names.

        Raises:
            SnapshotError: an array is missing or has another size or dtype.
        """
        for name, target in targets:
            if name not in self.arrays:
                raise SnapshotError(f"the snapshot lacks the array {name!r}")
            source = np.asarray(self.arrays[name])
            if source.shape != target.shape or source.dtype != target.dtype:
                raise SnapshotError(
                    f"array {name!r} is {source.dtype}{list(source.shape)} in the snapshot, "
                    f"not {target.dtype}{list(target.shape)}"
                )
            target[:] = source
