"""What must be true of the model of workers that train in step, whatever happens."""

from __future__ import annotations

from replica_member import frozen
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
    """Return what makes two states the same."""
    group = world.group
    return (
        tuple((name, frozen(value)) for name, value in vars(group).items()),
        tuple((n, m.key()) for n, m in sorted(world.members.items())),
        frozen(world.held),
        world.deaths,
        frozen(world.slots),
        world.ledger,
        frozen(world.sent),
        world.snapshot,
        (world.origin, world.incarnation, world.former),
        world.succession and frozen(world.succession._offers),
        tuple(getattr(world.budget, name) for name in world.budget.__slots__),
    )
