"""The steps that a member keeps for a new master: those since the present one's last snapshot."""

from __future__ import annotations

from collections import deque

from edl_worker.core.replicas import Holding, OriginSpan, ReplicaStep, VersionOrigin

MAX_CLAIMS = 100_000
"""The most that is kept: a member with more forgets its oldest steps."""


class KeptSteps:
    """The last steps of a member's values, with the origins of their versions.

    Attributes:
        version: of the values; None: nothing is known of them.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Keep nothing."""
        self.version: int | None = None
        self._spans: list[OriginSpan] = []
        self._steps: deque[ReplicaStep] = deque()
        self._claims = 0

    def begin(self, version: int, origin: VersionOrigin) -> None:
        """Begin with values of a version."""
        self.forget()
        self.version, self._spans = version, [OriginSpan(version, origin)]

    def add(self, step: ReplicaStep, origin: VersionOrigin) -> None:
        """Add the step that follows."""
        if self.version is None:
            return
        self.version = step.version
        self._steps.append(step)
        self._claims += len(step.claims)
        if self._spans[-1].origin != origin:
            self._spans.append(OriginSpan(step.version, origin))
        while self._claims > MAX_CLAIMS:
            self.forget_until(self._steps[0].version)

    def forget_until(self, version: int) -> None:
        """Forget the steps that have made versions up to this one."""
        if self.version is None or not self._spans[0].version < version <= self.version:
            return
        while self._steps and self._steps[0].version <= version:
            self._claims -= len(self._steps.popleft().claims)
        past = [span for span in self._spans if span.version <= version]
        later = self._spans[len(past) :]
        self._spans = [OriginSpan(version, past[-1].origin), *later]

    def tell(self, after: int) -> tuple[ReplicaStep, ...]:
        """Return the steps after a version."""
        return tuple(step for step in self._steps if step.version > after)

    @property
    def holding(self) -> Holding | None:
        """The values and versions to name to a new master; None: nothing is kept."""
        return None if self.version is None else Holding(self.version, tuple(self._spans))
