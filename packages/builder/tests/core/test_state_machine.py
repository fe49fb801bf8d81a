"""The state machine: what is decided for which facts, and what holds whatever happens."""

from __future__ import annotations

from edl_builder.core import effects as fx
from edl_builder.core import events as ev
from edl_builder.core.build import BuildLimits, BuildResult, Phase, SourceKind
from edl_builder.core.failure import Failure, Reason
from edl_builder.core.identifiers import BuildId, BuildIdentity, Caller, Key
from edl_builder.core.state_machine import BuildStateMachine

A, B, C = BuildId("a"), BuildId("b"), BuildId("c")
ANN, BOB = Caller("ann"), Caller("bob")
ONE, TWO = BuildIdentity("r/x", Key("1"), ""), BuildIdentity("r/x", Key("2"), "")
RESULT = BuildResult("r/x@sha256:0", 1, 0.0, 3, 0, False, Key("1"))
BROKEN = Failure(Reason.BUILD, "pip failed")


class Service:
    """Builds, with the clock in the hands of the test."""

    def __init__(self, **limits: float) -> None:
        self.builds = BuildStateMachine(BuildLimits(**limits))
        self.now = 100.0

    def handle_event(self, *events: ev.Event) -> list[fx.Effect]:
        found: list[fx.Effect] = []
        for event in events:
            found += self.builds.handle(event, self.now)
        return found

    def phase(self, build: BuildId) -> Phase:
        found = self.builds.get(build)
        assert found is not None
        return found.phase

    def attempts(self, build: BuildId) -> int:
        found = self.builds.get(build)
        assert found is not None
        return found.attempts

    def request_and_prepare(
        self, build: BuildId, identity: BuildIdentity, caller: Caller = ANN
    ) -> list[fx.Effect]:
        return self.handle_event(
            ev.BuildRequested(build, caller, SourceKind.ARCHIVE),
            ev.Subscribed(build),
            ev.ArchiveReceived(build),
            ev.ResolvingStarted(build),
            ev.ContextPrepared(build, identity),
        )


def starts(effects: list[fx.Effect]) -> list[BuildId]:
    return [e.build for e in effects if isinstance(e, fx.StartBuilding)]


def test_an_archive_is_received_resolved_built_and_pushed() -> None:
    service = Service()
    assert service.handle_event(ev.BuildRequested(A, ANN, SourceKind.ARCHIVE)) == [
        fx.BuildChanged(A)
    ]
    assert service.phase(A) is Phase.RECEIVING
    assert fx.StartPreparing(A) in service.handle_event(ev.ArchiveReceived(A))
    assert service.phase(A) is Phase.RESOLVING
    assert fx.StartBuilding(A, ONE) in service.handle_event(ev.ContextPrepared(A, ONE))
    service.handle_event(ev.PushStarted(A))
    assert service.phase(A) is Phase.PUSHING
    assert service.handle_event(ev.BuildSucceeded(A, RESULT)) == [
        fx.BuildChanged(A),
        fx.BuildFinished(A),
        fx.PruneImages(),
    ]
    assert service.phase(A) is Phase.DONE


def test_a_tenants_builds_wait_beyond_its_own_number_and_no_other_builds() -> None:
    service = Service(building=3)

    def request_and_prepare(build: BuildId, caller: Caller) -> list[BuildId]:
        identity = BuildIdentity("r/x", Key(build), "")
        requested = ev.BuildRequested(build, caller, SourceKind.ARCHIVE, at_once=1)
        return starts(
            service.handle_event(
                requested,
                ev.Subscribed(build),
                ev.ArchiveReceived(build),
                ev.ContextPrepared(build, identity),
            )
        )

    assert request_and_prepare(A, ANN) == [A]
    assert request_and_prepare(B, ANN) == [], "ann has one already"
    assert request_and_prepare(C, BOB) == [C]
    assert starts(service.handle_event(ev.BuildSucceeded(C, RESULT))) == []
    assert starts(service.handle_event(ev.BuildSucceeded(A, RESULT))) == [B]


def test_the_number_of_a_tenants_builds_at_a_time_survives_a_restart() -> None:
    service = Service(building=3)
    for build, identity in ((A, ONE), (B, TWO)):
        service.handle_event(
            ev.BuildRecovered(
                build, ANN, frozenset({ANN}), SourceKind.ARCHIVE, 1.0, identity, 0, at_once=1
            )
        )
    assert (service.phase(A), service.phase(B)) == (Phase.BUILDING, Phase.QUEUED)


def test_git_is_fetched_when_a_slot_is_free() -> None:
    service = Service(preparing=1)
    assert fx.StartPreparing(A) in service.handle_event(ev.BuildRequested(A, ANN, SourceKind.GIT))
    service.handle_event(ev.BuildRequested(B, ANN, SourceKind.GIT))
    assert (service.phase(A), service.phase(B)) == (Phase.FETCHING, Phase.QUEUED)
    assert service.builds.position(B) == 1
    assert fx.StartPreparing(B) in service.handle_event(ev.ContextPrepared(A, ONE))


def test_what_the_registry_has_is_never_built() -> None:
    service = Service()
    service.handle_event(ev.BuildRequested(A, ANN, SourceKind.ARCHIVE), ev.ArchiveReceived(A))
    effects = service.handle_event(ev.BuildSucceeded(A, RESULT))
    assert starts(effects) == []
    assert fx.PruneImages() not in effects


def test_identical_requests_become_one_build() -> None:
    service = Service()
    service.request_and_prepare(A, ONE, ANN)
    effects = service.request_and_prepare(B, ONE, BOB)
    assert fx.BuildMerged(B, A) in effects
    assert starts(effects) == []
    joined = service.builds.get(B)
    assert joined is service.builds.get(A)
    assert joined is not None
    assert (joined.subscribers, joined.callers) == (2, {ANN, BOB})


def test_the_same_content_under_another_tag_waits_for_the_first() -> None:
    service = Service()
    service.request_and_prepare(A, ONE)
    tagged = BuildIdentity(ONE.repository, ONE.key, "v1")
    assert starts(service.request_and_prepare(B, tagged)) == []
    assert service.phase(B) is Phase.QUEUED
    assert starts(service.handle_event(ev.BuildSucceeded(A, RESULT))) == [B]


def test_no_more_than_so_many_are_built_at_a_time() -> None:
    service = Service(building=2)
    for number in range(4):
        service.request_and_prepare(
            BuildId(str(number)), BuildIdentity("r/x", Key(str(number)), "")
        )
    phases = [service.phase(BuildId(str(number))) for number in range(4)]
    assert phases == [Phase.BUILDING, Phase.BUILDING, Phase.QUEUED, Phase.QUEUED]


def test_many_builds_of_one_tenant_do_not_delay_another() -> None:
    service = Service(building=1)
    for number in range(5):
        service.request_and_prepare(
            BuildId(f"ann{number}"), BuildIdentity("r/x", Key(f"a{number}"), ""), ANN
        )
    service.request_and_prepare(B, TWO, BOB)
    request = []
    running = [BuildId("ann0")]
    while running:
        request += running
        running = starts(service.handle_event(ev.BuildSucceeded(running[0], RESULT)))
    assert request[:3] == ["ann0", "ann1", "b"]
    assert len(request) == 6


def test_a_caller_who_leaves_does_not_end_a_build_that_others_wait_for() -> None:
    service = Service(abandon_s=60)
    service.request_and_prepare(A, ONE, ANN)
    service.request_and_prepare(B, ONE, BOB)
    service.handle_event(ev.Unsubscribed(A))
    service.now += 61
    assert service.handle_event(ev.Tick()) == []
    service.handle_event(ev.Unsubscribed(B))
    service.now += 59
    assert service.handle_event(ev.Tick()) == []
    service.now += 2
    assert fx.CancelWork(A) in service.handle_event(ev.Tick())


def test_a_caller_that_returns_in_time_finds_the_build_running() -> None:
    service = Service(abandon_s=60)
    service.request_and_prepare(A, ONE)
    service.handle_event(ev.Unsubscribed(A))
    service.now += 59
    service.handle_event(ev.Subscribed(A))
    service.now += 100
    assert service.handle_event(ev.Tick()) == []


def test_cancelling_frees_the_slot_only_when_the_work_has_stopped() -> None:
    service = Service(building=1)
    service.request_and_prepare(A, ONE)
    service.request_and_prepare(B, TWO)
    assert fx.CancelWork(A) in service.handle_event(ev.CancelRequested(A))
    assert service.phase(B) is Phase.QUEUED
    effects = service.handle_event(ev.WorkFailed(A, BROKEN))
    assert service.phase(A) is Phase.CANCELLED
    assert starts(effects) == [B]


def test_cancelling_what_waits_ends_it_at_once() -> None:
    service = Service(building=1)
    service.request_and_prepare(A, ONE)
    service.request_and_prepare(B, TWO)
    effects = service.handle_event(ev.CancelRequested(B))
    assert effects == [fx.BuildChanged(B), fx.BuildFinished(B)]
    assert service.phase(B) is Phase.CANCELLED
    assert starts(service.handle_event(ev.BuildSucceeded(A, RESULT))) == []


def test_no_request_joins_a_build_that_is_being_cancelled() -> None:
    service = Service()
    service.request_and_prepare(A, ONE)
    service.handle_event(ev.CancelRequested(A))
    assert starts(service.request_and_prepare(B, ONE)) == []
    assert starts(service.handle_event(ev.WorkFailed(A, BROKEN))) == [B]


def test_a_build_over_its_time_limit_is_stopped_and_reported() -> None:
    service = Service(build_s=10)
    service.request_and_prepare(A, ONE)
    service.now += 11
    assert fx.CancelWork(A) in service.handle_event(ev.Tick())
    service.handle_event(ev.WorkFailed(A, BROKEN))
    build = service.builds.get(A)
    assert build is not None
    assert build.failure is not None
    assert (build.phase, build.failure.reason) == (Phase.FAILED, Reason.TIMEOUT)


def test_a_sender_that_stops_sending_ends_at_the_deadline() -> None:
    service = Service(receive_s=10)
    service.handle_event(ev.BuildRequested(A, ANN, SourceKind.ARCHIVE), ev.Subscribed(A))
    service.now += 11
    assert fx.BuildFinished(A) in service.handle_event(ev.Tick())
    assert service.handle_event(ev.ArchiveReceived(A)) == []


def test_a_full_queue_refuses() -> None:
    service = Service(waiting=3, waiting_per_caller=2)
    for build in (A, B):
        service.handle_event(ev.BuildRequested(build, ANN, SourceKind.ARCHIVE))
    (effect,) = service.handle_event(ev.BuildRequested(C, ANN, SourceKind.ARCHIVE))
    assert isinstance(effect, fx.RequestRejected)
    assert effect.failure.reason is Reason.LIMIT
    service.handle_event(ev.BuildRequested(C, BOB, SourceKind.ARCHIVE))
    (effect,) = service.handle_event(ev.BuildRequested(BuildId("d"), BOB, SourceKind.ARCHIVE))
    assert isinstance(effect, fx.RequestRejected)


def recovered_build(
    build: BuildId, source: SourceKind, identity: BuildIdentity | None, attempts: int
) -> ev.BuildRecovered:
    return ev.BuildRecovered(build, ANN, frozenset({ANN}), source, 50.0, identity, attempts)


def test_after_a_restart_what_was_prepared_is_built_again() -> None:
    service = Service()
    effects = service.handle_event(recovered_build(A, SourceKind.ARCHIVE, ONE, 1))
    assert fx.StartBuilding(A, ONE) in effects
    assert service.attempts(A) == 2
    service.now += 1e6  # no caller waits, and none can know that it goes on: it is kept
    assert not any(isinstance(e, fx.BuildFinished) for e in service.handle_event(ev.Tick()))


def test_after_a_restart_identical_ones_are_one_build() -> None:
    """The service died between knowing the second one's key and joining it to the first."""
    service = Service()
    effects = service.handle_event(
        recovered_build(A, SourceKind.ARCHIVE, ONE, 1),
        recovered_build(B, SourceKind.ARCHIVE, ONE, 0),
    )
    assert starts(effects) == [A]
    assert fx.BuildMerged(B, A) in effects


def test_after_a_restart_git_is_fetched_again() -> None:
    service = Service()
    assert fx.StartPreparing(A) in service.handle_event(recovered_build(A, SourceKind.GIT, None, 0))


def test_after_a_restart_half_an_archive_is_reported() -> None:
    service = Service()
    assert fx.BuildFinished(A) in service.handle_event(
        recovered_build(A, SourceKind.ARCHIVE, None, 0)
    )
    build = service.builds.get(A)
    assert build is not None
    assert build.failure is not None
    assert build.failure.reason is Reason.RESTARTED


def test_what_has_ended_the_service_twice_is_not_tried_a_third_time() -> None:
    service = Service(attempts=2)
    assert starts(service.handle_event(recovered_build(A, SourceKind.ARCHIVE, ONE, 2))) == []
    assert service.phase(A) is Phase.FAILED


def test_the_end_of_the_service_is_no_attempt_at_a_build() -> None:
    service = Service(building=1, preparing=1)
    service.request_and_prepare(A, ONE)
    service.request_and_prepare(B, TWO)
    service.handle_event(ev.BuildRequested(C, BOB, SourceKind.GIT))
    assert [service.attempts(each) for each in (A, B, C)] == [1, 0, 0]
    assert service.handle_event(ev.ServiceStopped()) == [fx.BuildChanged(A)]
    assert [service.attempts(each) for each in (A, B, C)] == [0, 0, 0]


def test_the_time_of_a_build_is_from_its_request_to_its_image() -> None:
    service = Service()
    service.request_and_prepare(A, ONE)
    service.now += 7.5
    service.handle_event(ev.BuildSucceeded(A, RESULT))
    build = service.builds.get(A)
    assert build is not None
    assert build.result is not None
    assert build.result.seconds == 7.5


def test_old_builds_are_forgotten_with_their_names() -> None:
    service = Service(keep=1, keep_s=1000)
    service.request_and_prepare(A, ONE)
    service.request_and_prepare(B, ONE)
    service.handle_event(ev.BuildSucceeded(A, RESULT), ev.Unsubscribed(A), ev.Unsubscribed(B))
    service.now += 1
    service.request_and_prepare(C, TWO)
    service.handle_event(ev.BuildSucceeded(C, RESULT), ev.Unsubscribed(C))
    assert service.handle_event(ev.Tick()) == [fx.ForgetBuild(A)]
    assert service.builds.get(B) is None
    service.now += 1001
    assert service.handle_event(ev.Tick()) == [fx.ForgetBuild(C)]
