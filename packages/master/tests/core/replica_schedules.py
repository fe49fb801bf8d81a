"""Orders of events in the life of a replica group: all of a short one, and random long ones."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from replica_checks import check, check_end, identify
from replica_member import Action, Budget
from replica_world import World


def explore(start: World, limit: int = 10_000_000) -> int:
    """Try every order of actions and faults; return the number of different states.

    Raises:
        AssertionError: something goes wrong; the message has the shortest way to it.
    """
    seen = {identify(start)}
    ways: list[tuple[World, tuple[Action, ...]]] = [(start, ())]
    while ways:
        following: list[tuple[World, tuple[Action, ...]]] = []
        for world, way in ways:
            steps = list(world.actions())
            if not steps:
                _tell(way, lambda world=world: check_end(world))
            for action in (*steps, *world.faults()):
                new = world.copy()
                _tell((*way, action), lambda new=new, action=action: _act(new, action))
                key = identify(new)
                if key not in seen:
                    seen.add(key)
                    following.append((new, (*way, action)))
            if len(seen) > limit:
                return len(seen)
        ways = following
    return len(seen)


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
