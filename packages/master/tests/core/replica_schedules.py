"""Orders of events in the life of a replica group: all of a short one, and random long ones."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from random import Random

from replica_checks import check, check_end, identify
from replica_member import Action, Budget
from replica_world import World


def explore(start: World, *, alike: bool = False) -> int:
    """Try every order of actions and faults; return the number of different states.

    Args:
        alike: nothing has happened to the workers yet. None is different from the others then, so
            the first event is tried with only one of them.

    Raises:
        AssertionError: something goes wrong; the message has the shortest way to it.
    """
    seen = {identify(start)}
    ways: list[tuple[World, tuple[Action, ...]]] = [(start, ())]
    gc.disable()  # there are no cycles, and looking for them takes a third of the time
    try:
        while ways:
            ways = [
                (new, (*way, action))
                for world, way in ways
                for action, new in _follow(world, way, alike=alike and not way)
                if _is_new(seen, new)
            ]
    finally:
        gc.enable()
    return len(seen)


def _follow(
    world: World, way: tuple[Action, ...], *, alike: bool
) -> Iterator[tuple[Action, World]]:
    """Yield what can happen, and what the world is like afterwards."""
    steps = list(world.actions())
    if not steps:
        _tell(way, lambda: check_end(world))
    for action in (*steps, *world.faults()):
        if alike and action[1] > 0:
            continue
        new = world.copy_for(action)
        _tell((*way, action), lambda new=new, action=action: _act(new, action))
        yield action, new


def _is_new(seen: set[object], world: World) -> bool:
    before = len(seen)
    seen.add(identify(world))
    return len(seen) > before


def play(seed: int) -> World:
    """Play one random life of a group with more members and faults than ``explore`` can try.

    Raises:
        AssertionError: something goes wrong; the message has the way to it.
    """
    random = Random(seed)
    budget = Budget(*(random.randrange(0, 4) for _ in range(8)))
    world = World(tuple(range(random.randrange(1, 9))), budget)
    for worker in range(random.randrange(1, 5)):
        world.do_start(worker)
    way: list[Action] = []
    patience = random.choice([1, 3, 20])
    while True:
        steps, faults = list(world.actions()), list(world.faults())
        if not steps:
            _tell(tuple(way), lambda: check_end(world))
        if not steps and not faults:
            return world
        is_fault = faults and (not steps or not random.randrange(patience))
        way.append(random.choice(faults if is_fault else steps))
        _tell(tuple(way), lambda: _act(world, way[-1]))


def _act(world: World, action: Action) -> None:
    world.act(action)
    check(world)


def _tell(way: tuple[Action, ...], check: Callable[[], None]) -> None:
    try:
        check()
    except Exception as error:
        told = "\n".join(f"  {name} {worker}" for name, worker in way)
        raise AssertionError(f"{error}\nafter\n{told}") from error
