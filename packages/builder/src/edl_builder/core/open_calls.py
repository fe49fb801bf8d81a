"""Limits the calls that are open at a time, for each caller and each method."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.identifiers import Caller


@dataclass(frozen=True, slots=True)
class OpenCallLimits:
    """Limits of open calls.

    Attributes:
        all_callers: of all callers together; more would take the threads that refuse calls.
        per_caller: of one caller.
        per_method: of one caller, for each call of one method.
        methods: other limits, by full method name.
    """

    all_callers: int
    per_caller: int
    per_method: int
    methods: dict[str, int] = field(default_factory=dict)


class OpenCalls:
    """Counts open calls. Not thread-safe: its owner holds a lock."""

    def __init__(self, limits: OpenCallLimits) -> None:
        self._limits = limits
        self._open: Counter[tuple[Caller, str]] = Counter()

    def enter(self, caller: Caller, method: str) -> None:
        """Count a call that begins. Raises: BuilderError: LIMIT, if too many are open."""
        limits = self._limits
        mine = sum(count for (who, _), count in self._open.items() if who == caller)
        for count, limit, whose in (
            (self._open.total(), limits.all_callers, "calls are open"),
            (mine, limits.per_caller, "of your calls are open"),
            (
                self._open[caller, method],
                limits.methods.get(method, limits.per_method),
                f"of your calls to {method.rpartition('/')[2]} are open",
            ),
        ):
            if count >= limit:
                raise BuilderError(
                    Reason.LIMIT,
                    f"{count} {whose}; the limit is {limit}",
                    where="the builder",
                    remedy="Wait until some have ended.",
                )
        self._open[caller, method] += 1

    def leave(self, caller: Caller, method: str) -> None:
        """Count the end of a call that was admitted."""
        self._open[caller, method] -= 1
        if not self._open[caller, method]:
            del self._open[caller, method]
