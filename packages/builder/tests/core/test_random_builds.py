"""The state machine of builds under facts in any order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from edl_builder.core import effects as fx
from edl_builder.core import events as ev
from edl_builder.core.build import BuildLimits, BuildResult, Phase, SourceKind
from edl_builder.core.failure import Failure, Reason
from edl_builder.core.identifiers import BuildId, BuildIdentity, Caller, Key
from edl_builder.core.state_machine import BuildStateMachine

ANN, BOB = Caller("ann"), Caller("bob")
RESULT = BuildResult("r/x@sha256:0", 1, 0.0, 3, 0, False, Key("1"))
BROKEN = Failure(Reason.BUILD, "pip failed")


class AnythingMayHappen(RuleBasedStateMachine):
    """Facts in any order; the invariants hold after each."""

    ids = Bundle("ids")

    @initialize()
    def begin(self) -> None:
        self.limits = BuildLimits(building=2, preparing=2, waiting=8, waiting_per_caller=5)
        self.builds = BuildStateMachine(self.limits)
        self.now = 0.0
        self.next = 0
        self.preparing: set[BuildId] = set()
        self.building: dict[BuildId, tuple[str, Key]] = {}
        self.ended: set[BuildId] = set()

    def handle_event(self, event: ev.Event) -> None:
        for effect in self.builds.handle(event, self.now):
            match effect:
                case fx.StartPreparing(name):
                    assert name not in self.preparing
                    self.preparing.add(name)
                case fx.StartBuilding(name, identity):
                    assert identity.content not in self.building.values(), "built twice at a time"
                    self.building[name] = identity.content
                case fx.BuildFinished(name):
                    assert name not in self.ended, "ended twice"
                    self.ended.add(name)
                case fx.CancelWork(name):
                    assert name in self.preparing or name in self.building

    @rule(target=ids, caller=st.sampled_from([ANN, BOB]), source=st.sampled_from(SourceKind))
    def request(self, caller: Caller, source: SourceKind) -> BuildId:
        self.next += 1
        name = BuildId(str(self.next))
        self.handle_event(ev.BuildRequested(name, caller, source))
        self.handle_event(ev.Subscribed(name))
        return name

    @rule(name=ids)
    def receive(self, name: BuildId) -> None:
        self.handle_event(ev.ArchiveReceived(name))

    @rule(name=ids, key=st.sampled_from("xyz"), tag=st.sampled_from(["", "v1"]))
    def prepare(self, name: BuildId, key: str, tag: str) -> None:
        if name in self.preparing:
            self.preparing.discard(name)
            self.handle_event(ev.ContextPrepared(name, BuildIdentity("r/x", Key(key), tag)))

    @rule(name=ids, good=st.booleans())
    def end_work(self, name: BuildId, good: bool) -> None:
        if name in self.preparing or name in self.building:
            self.preparing.discard(name)
            self.building.pop(name, None)
            self.handle_event(
                ev.BuildSucceeded(name, RESULT) if good else ev.WorkFailed(name, BROKEN)
            )

    @rule(name=ids)
    def cancel(self, name: BuildId) -> None:
        self.handle_event(ev.CancelRequested(name))

    @rule(name=ids)
    def leave(self, name: BuildId) -> None:
        build = self.builds.get(name)
        if build is not None and build.subscribers:
            self.handle_event(ev.Unsubscribed(name))

    @rule(seconds=st.sampled_from([1.0, 61.0, 1000.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.handle_event(ev.Tick())

    @invariant()
    def no_more_work_than_allowed(self) -> None:
        assert len(self.preparing) <= self.limits.preparing
        assert len(self.building) <= self.limits.building

    @invariant()
    def what_waits_has_a_place_and_free_slots_are_used(self) -> None:
        waiting = [b for b in self.builds.newest() if b.phase is Phase.QUEUED]
        for build in waiting:
            assert self.builds.position(build.id) >= 1
        ready = [b for b in waiting if b.identity is None]
        assert not ready or len(self.preparing) == self.limits.preparing

    @invariant()
    def identical_open_builds_are_one(self) -> None:
        mine = [
            b.identity
            for b in self.builds.newest()
            if b.identity and not b.phase.is_final and b.cancel_failure is None
        ]
        assert len(mine) == len(set(mine))

    def teardown(self) -> None:
        """Whatever has happened, all ends when the work does."""
        for _ in range(3 * self.next + 1):
            for name in [*self.preparing, *self.building]:
                self.preparing.discard(name)
                self.building.pop(name, None)
                self.handle_event(ev.WorkFailed(name, BROKEN))
        self.now += 1e5
        self.handle_event(ev.Tick())
        for build in self.builds.newest():
            assert build.phase.is_final, build


TestAnythingMayHappen = AnythingMayHappen.TestCase
TestAnythingMayHappen.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
