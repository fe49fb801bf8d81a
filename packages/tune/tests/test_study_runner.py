"""A study with fake jobs and Optuna's real storage: kills of the command at every moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from fake_jobs import EPOCHS, Calls, FakeJobs, Killed, SilentStudy
from plans import make_plan

from edl_tune.adapters.optuna_store import OptunaStore
from edl_tune.core.plan import StudyPlan
from edl_tune.core.search_space import Hyperparameter, Value, ValueChoice
from edl_tune.core.study import MAX_FAILURES, MAX_RESUMPTIONS, Study, StudyRules
from edl_tune.core.trials import SeenJob, Trial, TrialJobPhase, TrialState
from edl_tune.study_runner import StudyRunner


def open_runner(
    file: Path, plan: StudyPlan, jobs: FakeJobs, calls: Calls | None = None
) -> StudyRunner:
    calls = calls or Calls()
    return StudyRunner(
        StudyRules(plan.objective, plan.trials, plan.parallel),
        calls.wrap(jobs),
        calls.wrap(OptunaStore(file, plan)),
        SilentStudy(),
        sleep=lambda _: None,
    )


def run(file: Path, plan: StudyPlan, jobs: FakeJobs, calls: Calls | None = None) -> Study:
    return open_runner(file, plan, jobs, calls).run()


def read_store(file: Path, plan: StudyPlan) -> list[Trial]:
    return list(OptunaStore(file, plan).trials())


@pytest.mark.parametrize(("is_done", "pruner"), [(False, "none"), (True, "none"), (True, "asha")])
def test_a_kill_at_any_moment_changes_no_trial(tmp_path: Path, is_done: bool, pruner: str) -> None:
    plan = make_plan(pruner=pruner, trials=3)
    counter = Calls()
    run(tmp_path / "undisturbed", plan, FakeJobs(), counter)
    wanted = read_store(tmp_path / "undisturbed", plan)
    assert [trial.number for trial in wanted] == [0, 1, 2]
    if pruner == "none":
        assert {trial.state for trial in wanted} == {TrialState.COMPLETE}
        assert {trial.result.records for trial in wanted} == {100 * EPOCHS}
    else:
        assert {trial.state for trial in wanted} == {TrialState.COMPLETE, TrialState.PRUNED}

    for fatal in range(1, counter.made + 1):
        file, jobs = tmp_path / f"killed-{fatal}", FakeJobs()
        with pytest.raises(Killed):
            run(file, plan, jobs, Calls(fatal, is_done=is_done))
        study = run(file, plan, jobs)
        assert jobs.starts == dict.fromkeys(range(plan.trials), 1), fatal
        found = read_store(file, plan)
        assert [trial.values for trial in found] == [trial.values for trial in wanted], fatal
        if pruner == "none":
            assert found == wanted, fatal
        assert all(trial.state.is_final for trial in found), fatal
        assert study.best is not None
        # What the command says is what the next one reads.
        assert study.trials == found, fatal


def test_a_grid_tries_each_value_once(tmp_path: Path) -> None:
    space = (Hyperparameter("x", ValueChoice((0.1, 0.2, 0.3, 0.4))),)
    plan = make_plan(space=space, sampler="grid")
    study = run(tmp_path / "j", plan, FakeJobs())
    assert sorted(str(trial.values["x"]) for trial in study.trials) == ["0.1", "0.2", "0.3", "0.4"]
    assert study.best is not None
    assert study.best.values == {"x": 0.4}


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_lists_are_values(tmp_path: Path, sampler: str) -> None:
    units = Hyperparameter("units", ValueChoice(([64], [64, 32])))
    plan = make_plan(space=(units,), sampler=sampler, trials=2)
    store = OptunaStore(tmp_path / "j", plan)
    values = [store.propose().values["units"] for _ in range(2)]
    assert all(value in ([64], [64, 32]) for value in values)
    assert [trial.values["units"] for trial in read_store(tmp_path / "j", plan)] == values


def test_two_kills_before_a_trial_has_its_values_leave_no_gap(tmp_path: Path) -> None:
    plan, jobs = make_plan(parallel=1), FakeJobs()
    file = tmp_path / "journal"
    OptunaStore(file, plan)
    for _ in range(2):
        store = OptunaStore(file, plan)
        store._study.ask()  # killed before anything is suggested
    study = run(file, plan, jobs)
    assert [trial.number for trial in study.trials] == [0, 1, 2, 3]
    assert all("x" in trial.values for trial in study.trials)
    assert jobs.starts == dict.fromkeys(range(4), 1)


def test_at_most_so_many_trials_run_at_the_same_time(tmp_path: Path) -> None:
    class Watched(FakeJobs):
        most = 0

        def start(self, number: int, values: Mapping[str, Value]) -> None:
            super().start(number, values)
            alive = [p for p in self.phases.values() if p is TrialJobPhase.ALIVE]
            self.most = max(self.most, len(alive))

    jobs = Watched()
    run(tmp_path / "j", make_plan(parallel=3, trials=7), jobs)
    assert jobs.most == 3


def test_a_pruned_trial_is_stopped_and_keeps_its_metrics(tmp_path: Path) -> None:
    plan, jobs = make_plan(pruner="asha", trials=8, parallel=1), FakeJobs()
    study = run(tmp_path / "j", plan, jobs)
    pruned = [trial for trial in study.trials if trial.state is TrialState.PRUNED]
    assert pruned
    for trial in pruned:
        assert jobs.stopped[trial.number] == "pruned by edl tune"
        assert trial.result.epochs < EPOCHS
        assert trial.result.metrics["accuracy"] == pytest.approx(trial.result.objective)
    assert study.best is not None
    assert study.best.number not in jobs.stopped


def test_a_trial_that_a_person_stops_is_not_continued(tmp_path: Path) -> None:
    class Stopped(FakeJobs):
        def look(self, number: int) -> SeenJob:
            seen = super().look(number)
            if number == 1 and seen.phase is TrialJobPhase.ALIVE:
                self.phases[1] = TrialJobPhase.STOPPED  # edl stop study-0001
            return seen

    study = run(tmp_path / "j", make_plan(), Stopped())
    states = [trial.state for trial in study.trials]
    assert states == [TrialState.COMPLETE, TrialState.STOPPED, *[TrialState.COMPLETE] * 2]
    assert read_store(tmp_path / "j", make_plan())[1].state is TrialState.STOPPED


def test_jobs_that_the_command_has_stopped_go_on_with_the_next_one(tmp_path: Path) -> None:
    plan, jobs, file = make_plan(), FakeJobs(), tmp_path / "j"
    runner = open_runner(file, plan, jobs, Calls(8))
    with pytest.raises(Killed):
        runner.run()
    open_runner(file, plan, jobs).stop_jobs()
    stopped = set(jobs.stopped)
    assert stopped
    study = run(file, plan, jobs)
    assert set(jobs.resumptions) == stopped
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}


def test_a_trial_that_a_person_stops_between_two_commands_is_given_up(tmp_path: Path) -> None:
    plan, jobs, file = make_plan(), FakeJobs(), tmp_path / "j"
    with pytest.raises(Killed):
        run(file, plan, jobs, Calls(8))
    jobs.stop(0, "edl stop")
    study = run(file, plan, jobs)
    assert jobs.resumptions == {}
    assert [trial.state for trial in study.trials] == [
        TrialState.STOPPED,
        *[TrialState.COMPLETE] * 3,
    ]


def test_a_job_that_is_lost_again_and_again_is_given_up(tmp_path: Path) -> None:
    class Lost(FakeJobs):
        def look(self, number: int) -> SeenJob:
            if number == 0 and self.phases.get(0) is TrialJobPhase.ALIVE:
                self.phases[0] = TrialJobPhase.LOST
            return super().look(number)

    jobs = Lost()
    study = run(tmp_path / "j", make_plan(), jobs)
    assert jobs.resumptions == {0: MAX_RESUMPTIONS}
    assert study.trials[0].state is TrialState.FAILED
    assert study.best is not None


def test_trials_that_fail_one_after_the_other_end_the_study(tmp_path: Path) -> None:
    plan = make_plan(trials=9, parallel=1)
    jobs = FakeJobs(fail=dict.fromkeys(range(9), "no memory"))
    study = run(tmp_path / "j", plan, jobs)
    assert len(study.trials) == MAX_FAILURES
    assert study.failure == "no memory"
    jobs.fail.clear()  # the next command goes on
    study = run(tmp_path / "j", plan, jobs)
    assert [trial.state for trial in study.trials].count(TrialState.COMPLETE) == 6


def test_a_loss_that_is_no_number_fails_its_trial_only(tmp_path: Path) -> None:
    jobs = FakeJobs(fail=dict.fromkeys(range(1, 9), "NaN"))
    study = run(tmp_path / "j", make_plan(trials=9, parallel=1), jobs)
    assert len(study.trials) == 9
    assert study.failure is None
    assert study.best is not None
    assert study.best.number == 0


def test_more_trials_continue_a_study_that_is_over(tmp_path: Path) -> None:
    file, jobs = tmp_path / "j", FakeJobs()
    first = run(file, make_plan(), jobs).trials
    more = run(file, make_plan(trials=6), jobs).trials
    assert more[:4] == first
    assert [trial.number for trial in more] == list(range(6))
    assert len({tuple(trial.values.values()) for trial in more}) == 6  # no value twice


def test_a_time_limit_starts_no_further_trials(tmp_path: Path) -> None:
    plan, jobs = make_plan(), FakeJobs()
    runner = StudyRunner(
        StudyRules(plan.objective, plan.trials, plan.parallel),
        jobs,
        OptunaStore(tmp_path / "j", plan),
        SilentStudy(),
        timeout_s=-1.0,
        sleep=lambda _: None,
    )
    assert runner.run().trials == []


def test_half_a_line_of_a_killed_command_is_no_change(tmp_path: Path) -> None:
    plan, file = make_plan(), tmp_path / "j"
    run(file, plan, FakeJobs())
    before = read_store(file, plan)
    with file.open("ab") as opened:
        opened.write(b'{"op_code": 4, "wor')
    (tmp_path / "j.lock").symlink_to(file)
    assert read_store(file, plan) == before
    more = run(file, replace(plan, trials=5), FakeJobs())
    assert len(more.trials) == 5
