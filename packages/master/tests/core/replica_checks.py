"""What must be true of the model of workers that train in step, whatever happens."""

from __future__ import annotations

from replica_world import World


def check(world: World) -> None:
    """Check that every record counts at most once, and that values are what is counted."""
    counted = [record for step in world.ledger for _, record in step if record is not None]
    assert len(counted) == len(set(counted)), f"a record counts twice: {world.ledger}"
    present = world.group.generation
    for worker, member in world.members.items():
        if member.is_fenced or present is None or member.generation != present.number:
            continue
        if member.incarnation != world.incarnation:
            continue
        if member.history is None or not world.has_begun(member):
            continue
        common = min(len(member.history), len(world.ledger))
        assert member.history[:common] == world.ledger[:common], (
            f"worker {worker} has other values than what is counted"
        )


def check_end(world: World) -> None:
    """Check that everything has counted."""
    if any(not member.is_fenced for member in world.members.values()):
        counted = {record for step in world.ledger for _, record in step}
        assert counted >= set(world.records), f"records are stuck: {world.ledger}"


def identify(world: World) -> object:
    """Return what makes two states the same.

    What is never read again makes no difference: slots of generations that are over for all
    members, and values that have been sent but are not waited for.
    """
    group, present = world.group, world.group.generation
    at = {(member.incarnation, member.generation) for member in world.members.values()}
    if present is not None:
        at.add((world.incarnation, present.number))
    saving = group._saving
    if world.group_key is None:
        world.group_key = tuple(map(_freeze, vars(group).values()))
    return (
        world.group_key,
        tuple((number, *member.key()) for number, member in sorted(world.members.items())),
        frozenset(world.held.items()),
        world.deaths,
        frozenset((k, frozenset(v.items())) for k, v in world.slots.items() if k[:2] in at),
        world.ledger,
        world.sent.get(saving.version) if saving is not None and saving.is_sent else None,
        world.snapshot,
        (world.origin, world.incarnation, world.former),
        world.succession and tuple(world.succession._offers.items()),
        world.budget,
    )


def _freeze(value: object) -> object:
    """Return a collection as a value that can be a key."""
    if isinstance(value, dict):
        return tuple((key, _freeze_step(each)) for key, each in value.items())
    return frozenset(value) if isinstance(value, set) else value


def _freeze_step(value: object) -> object:
    """Return a step as a value that does not depend on the order of the reports."""
    return frozenset(value.items()) if isinstance(value, dict) else value
