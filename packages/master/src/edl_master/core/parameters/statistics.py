"""Statistics of tables and parameter servers, for the job's page and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Sizes of embedding tables.

    Attributes:
        rows: number of rows of each table, by its name.
        nbytes: memory of all tables, slots and indexes included.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    nbytes: int = 0

    def __add__(self, other: TableStatistics) -> TableStatistics:
        """Return the sums over both."""
        rows = {
            name: self.rows.get(name, 0) + other.rows.get(name, 0)
            for name in dict.fromkeys((*self.rows, *other.rows))
        }
        return TableStatistics(rows, self.nbytes + other.nbytes)


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """The work and the resources of one parameter server.

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
