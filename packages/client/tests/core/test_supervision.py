"""When a supervisor starts, ends and gives up masters."""

from __future__ import annotations

import pytest

from edl.core.supervision import (
    MAX_SHORT_LIVES,
    SILENCE_S,
    Decision,
    GiveUp,
    Master,
    MasterExit,
    Observation,
    Restart,
    RestartPolicy,
    Supervision,
)


def verdicts(*ends: MasterExit) -> list[Restart | GiveUp]:
    """Return the verdicts that follow from a sequence of exits."""
    policy, found = RestartPolicy(), []
    for end in ends:
        policy, verdict = policy.after(end)
        found.append(verdict)
    return found


def kill(lived_s: float) -> MasterExit:
    return MasterExit(lived_s, signal=9)


def fail(lived_s: float) -> MasterExit:
    return MasterExit(lived_s, exit_code=1)


# --- the restart policy ------------------------------------------------------------------------


@pytest.mark.parametrize("end", [kill(100.0), kill(0.5), fail(0.5)])
def test_the_first_restart_is_immediate(end: MasterExit) -> None:
    assert verdicts(end) == [Restart(0.0)]


def test_kills_with_some_life_in_between_never_end_a_job() -> None:
    assert set(verdicts(*[kill(6.0)] * 1000)) == {Restart(0.0)}


@pytest.mark.parametrize(
    "end",
    [MasterExit(0.5, exit_code=1), MasterExit(0.5, signal=11), MasterExit(0.5, exit_code=127)],
)
def test_a_master_that_ends_by_itself_soon_after_each_start_is_given_up(end: MasterExit) -> None:
    first, second, third = verdicts(end, end, end)
    assert (first, second) == (Restart(0.0), Restart(0.25))
    assert isinstance(third, GiveUp)
    assert "3 times" in third.why


def test_a_crash_after_a_good_life_begins_the_count_anew() -> None:
    for verdict in verdicts(*[fail(0.5), fail(0.5), fail(60.0)] * 10):
        assert isinstance(verdict, Restart)


def test_delays_double_up_to_a_limit_and_kills_at_once_are_given_up_in_the_end() -> None:
    found = verdicts(*[kill(0.5)] * MAX_SHORT_LIVES)
    delays = [verdict.delay_s for verdict in found if isinstance(verdict, Restart)]
    assert delays[:6] == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0]
    assert set(delays[6:]) == {5.0}
    assert isinstance(found[-1], GiveUp)


def test_an_unknown_exit_status_counts_as_a_kill() -> None:
    unknown = MasterExit(6.0)
    assert unknown.was_killed
    assert set(verdicts(*[unknown] * 50)) == {Restart(0.0)}


def test_a_master_that_never_listened_and_ends_by_itself_is_not_tried_again() -> None:
    (verdict,) = verdicts(MasterExit(30.0, exit_code=3, listened=False))
    assert verdict == GiveUp("the job's master ended with exit code 3 before it listened")
    (verdict,) = verdicts(MasterExit(0.0, listened=False, start_error="no such file"))
    assert verdict == GiveUp("the job's master cannot be started: no such file")


def test_a_master_that_is_killed_before_it_listens_is_tried_again() -> None:
    assert verdicts(MasterExit(0.1, signal=9, listened=False)) == [Restart(0.0)]


# --- the supervisor ----------------------------------------------------------------------------


class Job:
    """One supervisor, its clock, and what it sees."""

    def __init__(self) -> None:
        self.state = Supervision()
        self.now = 100.0
        self.has_master = False
        self.is_over = False
        self.is_wanted = True
        self.heartbeat = 0

    def observe(
        self, end: MasterExit | None = None, *, lost_race: bool = False, after_s: float = 0.5
    ) -> list[Decision | GiveUp]:
        self.now += after_s
        seen = Observation(
            self.is_wanted, self.is_over, self.has_master, self.heartbeat, end, lost_race
        )
        self.state, decisions = self.state.observe(seen, self.now)
        return list(decisions)

    def starts(self) -> None:
        assert self.observe() == [Decision.START_MASTER]
        self.has_master = True

    def observe_for(self, seconds: float) -> list[Decision | GiveUp]:
        """Observe twice a second; the decisions made meanwhile."""
        found: list[Decision | GiveUp] = []
        for _ in range(int(seconds / 0.5)):
            found += self.observe()
        return found


@pytest.fixture
def job() -> Job:
    return Job()


def test_a_missing_master_is_started_and_a_living_one_left_alone(job: Job) -> None:
    job.starts()
    for job.heartbeat in range(200):
        assert job.observe() == []


def test_a_restart_waits_for_its_delay(job: Job) -> None:
    job.starts()
    job.has_master = False
    assert job.observe(kill(0.1)) == []
    job.starts()
    job.has_master = False
    assert job.observe(kill(0.1)) == []
    assert job.observe(after_s=0.2) == []
    assert job.observe(after_s=0.1) == [Decision.START_MASTER]


def test_a_master_without_a_sign_of_life_is_ended_also_before_its_first_one(job: Job) -> None:
    job.starts()
    assert job.observe_for(SILENCE_S) == []
    assert job.observe_for(1.0) == [Decision.END_MASTER]
    assert job.observe(MasterExit(31.0, signal=9)) == []


def test_a_master_is_not_ended_for_a_time_in_which_its_supervisor_was_frozen(job: Job) -> None:
    job.starts()
    assert job.observe(after_s=300.0) == []
    assert job.observe_for(SILENCE_S - 1) == []


def test_the_master_of_an_earlier_supervisor_is_observed_to_its_end(job: Job) -> None:
    job.has_master = True
    assert job.observe() == []
    assert job.state.master is Master.ORPHAN
    job.has_master = False
    assert job.observe() == []
    assert job.observe() == [Decision.START_MASTER]


def test_a_child_that_finds_the_directory_taken_is_no_failure(job: Job) -> None:
    job.starts()
    assert job.observe(lost_race=True) == []
    assert job.state.master is Master.ORPHAN


def test_workers_are_ended_when_the_job_is_over_and_its_master_gone(job: Job) -> None:
    job.starts()
    job.is_over = True
    assert job.observe() == [], "the master may keep the job's page"
    job.has_master = False
    assert job.observe(fail(9.0)) == [Decision.END_WORKERS, Decision.LEAVE]


def test_a_supervisor_that_gives_up_leaves_no_worker(job: Job) -> None:
    job.starts()
    job.has_master = False
    *_, last = found = job.observe(MasterExit(1.0, exit_code=1, listened=False))
    assert isinstance(found[0], GiveUp)
    assert found[1:] == [Decision.END_WORKERS, Decision.LEAVE]
    assert last is Decision.LEAVE


def test_a_supervisor_leaves_a_job_that_is_not_wanted_any_more(job: Job) -> None:
    job.starts()
    job.is_wanted = False
    assert job.observe() == [Decision.LEAVE]
