"""Figures of the parameter plane for the status page and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edl_master.core.identifiers import Version
from edl_master.core.parameters.push import PushOutcome


@dataclass(frozen=True, slots=True)
class TableFigures:
    """Sizes of embedding tables.

    Attributes:
        rows: number of rows of each table, by its name.
        nbytes: memory of all tables, slots and indexes included.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    nbytes: int = 0

    def __add__(self, other: TableFigures) -> TableFigures:
        """The figures of both together."""
        rows = {
            name: self.rows.get(name, 0) + other.rows.get(name, 0)
            for name in dict.fromkeys((*self.rows, *other.rows))
        }
        return TableFigures(rows, self.nbytes + other.nbytes)


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """What one parameter server has done and uses.

    Attributes:
        received_nbytes: of gradients and values.
        sent_nbytes: of values.
        requests: that were answered.
        requests_s: time that this took.
        cpu_s: processor time of its process.
        resident_nbytes: memory of its process.
    """

    received_nbytes: int
    sent_nbytes: int
    requests: int
    requests_s: float
    cpu_s: float
    resident_nbytes: int


@dataclass(frozen=True, slots=True)
class PlaneStatus:
    """Figures of the parameter plane.

    Attributes:
        version: parameter version.
        learning_rate: rate of the next update.
        records_applied: records whose gradients were applied or accumulated.
        gradients_applied: gradients applied or accumulated.
        gradients_rejected: pushes that were not applied, by outcome.
        staleness_total: sum of the staleness of the gradients applied.
        accumulated: gradients that wait for their update to be complete (sync mode).
        step_permits_held: step permits in use (sync mode).
        open_tasks: tasks with a count.
        tables: sizes of embedding tables.
    """

    version: Version
    learning_rate: float
    records_applied: int
    gradients_applied: int
    gradients_rejected: Mapping[PushOutcome, int]
    staleness_total: int
    accumulated: int
    step_permits_held: int
    open_tasks: int
    tables: TableFigures = field(default_factory=TableFigures)
