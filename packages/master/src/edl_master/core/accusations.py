"""Which member of a replica group must go if some members cannot reach others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from edl_master.core.identifiers import WorkerId

Accusation: TypeAlias = tuple[WorkerId, WorkerId]
"""A member, and another one that it cannot reach."""


def find_unreachable(accusations: Sequence[Accusation], members: Sequence[WorkerId]) -> Accusation:
    """Return the member that most others cannot reach, on a tie the youngest, and one of these.

    The one that says so may be the one that cannot be reached, so it is suspected, too.

    Args:
        accusations: of members.
        members: the oldest first.
    """
    suspicion: Counter[WorkerId] = Counter()
    for accuser, accused in accusations:
        suspicion += Counter({accused: 2, accuser: 1})
    worst = max(suspicion, key=lambda worker: (suspicion[worker], members.index(worker)))
    accuser, accused = next(pair for pair in accusations if worst in pair)
    return worst, accused if accuser == worst else accuser
