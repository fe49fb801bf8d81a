"""A queue that serves callers in turn, each one's builds in their order."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

from edl_builder.core.identifiers import BuildId, Caller


class FairQueue:
    """One caller's twenty builds do not delay another caller's single build."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Caller, deque[BuildId]] = OrderedDict()

    def add(self, caller: Caller, build: BuildId) -> None:
        """A build waits from now on."""
        self._waiting.setdefault(caller, deque()).append(build)

    def remove(self, build: BuildId) -> None:
        """A build waits no longer; nothing happens if it did not."""
        for caller, builds in list(self._waiting.items()):
            if build in builds:
                builds.remove(build)
                if not builds:
                    del self._waiting[caller]

    def take(self, may: Callable[[BuildId], bool] = lambda _: True) -> BuildId | None:
        """The next build that may start; its caller then goes to the end of the queue."""
        for build in self.order():
            if may(build):
                caller = next(c for c, builds in self._waiting.items() if build in builds)
                self.remove(build)
                if caller in self._waiting:
                    self._waiting.move_to_end(caller)
                return build
        return None

    def order(self) -> Iterator[BuildId]:
        """All that wait, in the order in which they would start."""
        rounds = [list(builds) for builds in self._waiting.values()]
        for depth in range(max(map(len, rounds), default=0)):
            for builds in rounds:
                if depth < len(builds):
                    yield builds[depth]
