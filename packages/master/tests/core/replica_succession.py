"""A new master in the model of replicated training, and the values that it begins with."""

from __future__ import annotations

from replica_member import Added
from replica_state import WorldState

from edl_master.core.identifiers import Version
from edl_master.core.replica_group import ReplicaGroup
from edl_master.core.succession import Succession


def restart_master(world: WorldState) -> None:
    """The master dies; the next one continues from what members hold, or its snapshot."""
    present = world.group.generation
    members = frozenset(present.members if present else ())
    fenced = {worker for worker, member in world.members.items() if member.is_fenced}
    world.former = world.ledger, members - fenced
    world.ledger, world.held, world.sent = world.snapshot, {}, {}
    world.incarnation += 1
    at, incarnation = Version(len(world.snapshot)), str(world.incarnation)
    world.group = ReplicaGroup(at, world.origin, incarnation)
    world.succession = Succession(at, world.origin)


def may_begin(world: WorldState) -> bool:
    """Return whether a restored job may begin, whichever workers have joined by then."""
    if world.succession is None or not world.succession._offers:
        return False
    chosen = world.succession.choose()
    return chosen is None or chosen in world.members  # it has to tell its steps


def begin_restored(world: WorldState) -> None:
    """Begin with what the workers of an earlier master hold, or with the snapshot."""
    assert world.succession is not None
    chosen, inherited = world.succession.choose(), world.succession.decide()
    if chosen is not None:
        history = world.members[chosen].history
        assert history is not None
        assert history[: len(world.snapshot)] == world.snapshot, "it does not continue this"
        _check_former(world, history)
        world.ledger = history
    for worker in world.succession._offers:
        if (member := world.members.get(worker)) is None:
            continue
        if worker in inherited.holders:
            assert member.history == world.ledger, "equal origins, but other values"
        else:
            member.history = None
    world.succession = None
    at = Version(len(world.snapshot))
    world.group = ReplicaGroup(at, world.origin, str(world.incarnation), inherited)


def _check_former(world: WorldState, history: tuple[Added, ...]) -> None:
    """Check that nothing is lost if a member of the last generation can tell its steps."""
    assert world.succession is not None
    counted, members = world.former
    for worker, holding in world.succession._offers.items():
        is_fit = holding is not None and holding.find_origin(world.succession.version)
        if worker in members and is_fit == world.origin and worker in world.members:
            assert history[: len(counted)] == counted, "steps that counted are lost"
