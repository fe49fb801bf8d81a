"""A queue that serves callers in turn, each one's builds in their order."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

from edl_builder.core.identifiers import BuildId, Caller


class FairQueue:
    """A queue in which one caller's twenty builds do not delay another's single one."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Caller, deque[BuildId]] = OrderedDict()

    def add(self, caller: Caller, build: BuildId) -> None:
        """Add a build to the queue."""
        self._waiting.setdefault(caller, deque()).append(build)

    def remove(self, build: BuildId) -> None:
        """Remove a build from the queue if it is there."""
        for caller, builds in list(self._waiting.items()):
            if build in builds:
                builds.remove(build)
                if not builds:
                    del self._waiting[caller]

    def take(self, may: Callable[[BuildId], bool] = lambda _: True) -> BuildId | None:
        """Take the next build that may start; its caller then goes to the end of the queue."""
        for build in self.order():
            if may(build):
                caller = next(c for c, builds in self._waiting.items() if build in builds)
                self.remove(build)
                if caller in self._waiting:
                    self._waiting.move_to_end(caller)
                return build
        return None

    def order(self) -> Iterator[BuildId]:
        """Return all waiting builds, in the order in which they would start."""
        rounds = [list(builds) for builds in self._waiting.values()]
        for depth in range(max(map(len, rounds), default=0)):
            for builds in rounds:
                if depth < len(builds):
                    yield builds[depth]
