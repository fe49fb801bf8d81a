"""Finds where a system stays for ever if each of its processes keeps acting, in any order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from typing import TypeVar

State = TypeVar("State", bound=Hashable)
Acts = Callable[[State], Mapping[str, State]]
"""What each process that may act now makes of a state, by its name."""


def endless(starts: Iterable[State], acts: Acts[State], processes: Set[str]) -> Iterator[State]:
    """The states that a weakly fair run, in which no process waits for ever, can repeat for ever.

    An endless run stays, in the end, in a set of states that lead to each other. If each process
    acts again and again, then in that set each of them has a step that does not leave it.
    """
    steps = _reachable(starts, acts)
    for component in _strongly_connected(steps):
        staying = {
            name
            for state in component
            for name, after in steps[state].items()
            if after in component
        }
        if staying >= processes:
            yield from component


def _reachable(starts: Iterable[State], acts: Acts[State]) -> dict[State, Mapping[str, State]]:
    steps: dict[State, Mapping[str, State]] = {}
    waiting = list(starts)
    while waiting:
        state = waiting.pop()
        if state not in steps:
            steps[state] = acts(state)
            waiting.extend(steps[state].values())
    return steps


def _strongly_connected(steps: Mapping[State, Mapping[str, State]]) -> Iterator[set[State]]:
    """Largest sets of states of which each leads to each (Kosaraju's algorithm)."""
    before: dict[State, list[State]] = {state: [] for state in steps}
    for state, after in steps.items():
        for each in after.values():
            before[each].append(state)
    forward = {state: list(after.values()) for state, after in steps.items()}
    finished: list[State] = []
    seen: set[State] = set()
    for state in steps:
        finished.extend(finish_order(state, forward, seen))
    seen = set()
    for state in reversed(finished):
        if component := set(finish_order(state, before, seen)):
            yield component


def finish_order(
    start: State, neighbours: Mapping[State, list[State]], seen: set[State]
) -> Iterator[State]:
    """New states that a depth-first search finds, in the order in which it is done with them."""
    if start in seen:
        return
    seen.add(start)
    path = [(start, iter(neighbours[start]))]
    while path:
        state, rest = path[-1]
        found = next((each for each in rest if each not in seen), None)
        if found is None:
            path.pop()
            yield state
        else:
            seen.add(found)
            path.append((found, iter(neighbours[found])))
