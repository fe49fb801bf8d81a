"""Callbacks between epochs: one call each, with the logs of the epoch, kept in snapshots."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from fakes.job_settings import job_settings

from edl_master.core import effects as fx
from edl_master.core import events as ev
from edl_master.core.failure import Failure
from edl_master.core.identifiers import InstanceId, TaskType, Version, WorkerId
from edl_master.core.job import JobStateMachine
from edl_master.core.metric_states import MetricState
from edl_master.core.settings import JobType

SETTINGS = job_settings(
    JobType.TRAIN, records_per_task=4, minibatch_size=2, num_epochs=5, shuffle=False, export=False
)
WORKER, INSTANCE = WorkerId(0), InstanceId("0a")


class Play:
    """A job with one worker, whose callbacks are a counter that decides by the loss.

    Attributes:
        calls: round, state, logs and learning rate of each call.
    """

    def __init__(
        self,
        validation: tuple[int, ...] = (),
        saved: Any = None,
        callbacks: tuple[str, ...] = ("EarlyStopping",),
        epochs: int = 5,
    ) -> None:
        self.validation = validation
        settings = replace(SETTINGS, allow_dead_letters=True, num_epochs=epochs)
        self.job = (
            JobStateMachine(settings, (8,), validation)
            if saved is None
            else JobStateMachine.restore(settings, (8,), validation, saved)
        )
        self.calls: list[tuple[int, bytes, dict[str, float], float | None]] = []
        self.order: list[str] = []
        self.at_end: list[int] = []
        self.begins: list[int] = []
        self.effects: list[fx.Effect] = []
        self.version = 0
        self.say(ev.Tick())
        self.say(ev.WorkerRegistered(WORKER, INSTANCE, "host", 1))
        self.say(ev.WorkerReady(WORKER, INSTANCE, callbacks=callbacks))

    def say(self, event: ev.Event) -> list[fx.Effect]:
        found = self.job.handle(event, 0.0)
        self.effects += found
        for effect in found:
            if isinstance(effect, fx.FreezeParameters):
                self.say(ev.ParametersFrozen(effect.name, Version(self.version)))
        return found

    def step(self) -> bool:
        """Do one task; False when there is none."""
        granted = self.say(ev.LeaseRequested(WORKER, INSTANCE))[0]
        if not isinstance(granted, fx.LeaseGranted):
            return False
        key, held = granted.task, ev.HeldLease(granted.task, granted.token)
        self.order.append(f"{key.type} {key.round}")
        done = ev.TaskCompleted(WORKER, held, 0, 0, 4, 4)
        match key.type:
            case TaskType.TRAINING:
                for _ in range(2):
                    self.version += 1
                    loss = 10.0 - key.round
                    version = Version(self.version)
                    self.say(ev.MinibatchApplied(WORKER, held, 2, version, loss, 0))
                done = replace(done, minibatches=2, applied=2)
            case TaskType.EVALUATION:
                done = replace(done, metric_states=(MetricState("n", ()),))
            case TaskType.EVALUATION_SUMMARY:
                done = replace(done, metrics={"accuracy": 0.1 * key.round})
            case TaskType.CALLBACKS:
                call = granted.callbacks
                assert call is not None
                self.calls.append((key.round, call.state, call.logs, call.learning_rate))
                if call.epoch_begin:
                    self.begins.append(key.round)
                if call.train_end:
                    self.at_end.append(key.round)
                stop = "EarlyStopping" if call.logs.get("loss", 9.0) < 8.5 else ""
                rate = 0.5 if key.round == 1 else None
                keeps, restores = key.round == 2, bool(stop)
                reply = ev.CallbackReply(call.state + b"x", stop, rate, keeps, restores)
                done = replace(done, callbacks=reply, warnings=("beta has changed",))
        self.say(done)
        return True

    def run(self) -> Play:
        while self.step():
            pass
        return self

    @property
    def saved(self) -> Any:
        return json.loads(json.dumps(self.job.snapshot()))


def test_callbacks_come_before_and_after_each_epoch_and_may_end_the_training() -> None:
    play = Play().run()
    assert play.order == [
        *("callbacks 0", "training 0", "training 0", "callbacks 1"),
        *("training 1", "training 1", "callbacks 2"),
        *("training 2", "training 2", "callbacks 3", "callbacks 4"),
    ]
    assert play.calls == [
        (0, b"", {}, None),
        (1, b"x", {"loss": 10.0}, None),
        (2, b"xx", {"loss": 9.0}, 0.5),
        (3, b"xxx", {"loss": 8.0}, 0.5),
        (4, b"xxxx", {"loss": 8.0}, 0.5),
    ]
    assert play.at_end == [4]
    view = play.job.view(0.0)
    assert view.warnings == ("beta has changed",)
    assert (view.progress.num_epochs, view.progress.records_total) == (3, 24)
    assert play.effects.count(fx.ChangeLearningRate(0.5)) == 1
    kinds = [e.kind for e in play.effects if isinstance(e, fx.LogEvent)]
    assert kinds.count("TrainingStopped") == kinds.count("LearningRateSet") == 1
    assert kinds.count("BestRestored") == 1
    decided = [e for e in play.effects if not isinstance(e, fx.LogEvent)]
    kept, back = decided.index(fx.KeepBest()), decided.index(fx.RestoreBest())
    (end,) = (
        at
        for at, effect in enumerate(decided)
        if isinstance(effect, fx.LeaseGranted) and effect.callbacks and effect.callbacks.train_end
    )
    assert kept < back < end < decided.index(fx.WriteCheckpoint())


@pytest.mark.parametrize("validation", [(), (4,)])
def test_the_first_of_more_epochs_begins_with_a_call(validation: tuple[int, ...]) -> None:
    saved = Play(validation, epochs=1).run().saved
    assert Play(validation, saved, epochs=1).run().calls == []
    play = Play(validation, saved, epochs=2)
    again = Play(validation, play.saved, epochs=2)  # its master died before the call
    for each in (play, again):
        each.run()
        assert [what for what in each.order if "evaluation" not in what] == [
            *("callbacks 1", "training 1", "training 1", "callbacks 2")
        ]
        assert each.begins == [1]
        assert [state for _, state, _, _ in each.calls] == [b"xx", b"xxx"]
    assert Play(validation, play.saved, epochs=2).run().calls == []


def test_logs_have_the_evaluation_of_the_epoch() -> None:
    play = Play(validation=(4,)).run()
    assert [sorted(logs) for _, _, logs, _ in play.calls] == [
        [],
        *[["loss", "val_accuracy"]] * 4,
    ]
    assert play.calls[2][2]["val_accuracy"] == pytest.approx(0.1)
    evaluated = [at for at, what in enumerate(play.order) if what.startswith("evaluation_summary")]
    assert len(evaluated) == 3, "the last version is not evaluated again"


@pytest.mark.parametrize("validation", [(), (4,)])
def test_a_master_that_dies_at_any_moment_changes_no_decision(validation: tuple[int, ...]) -> None:
    whole = Play(validation).run()
    for moment in range(len(whole.order)):
        play = Play(validation)
        for _ in range(moment):
            assert play.step()
        again = Play(validation, play.saved)
        again.version = play.version
        again.run()
        calls = {number: call for number, *call in play.calls} | {
            number: call for number, *call in again.calls
        }
        assert calls == {number: call for number, *call in whole.calls}
        trained = play.order[:moment] + again.order
        for epoch in range(3):
            assert trained.count(f"training {epoch}") == 2
        assert "training 3" not in trained
        decided = play.effects + again.effects
        assert decided.count(fx.KeepBest()) == decided.count(fx.RestoreBest()) == 1
        assert again.job.view(0.0).progress.num_epochs == 3


def test_callbacks_that_raise_fail_the_job_though_dead_letters_are_allowed() -> None:
    play = Play()
    granted = play.say(ev.LeaseRequested(WORKER, INSTANCE))[0]
    assert isinstance(granted, fx.LeaseGranted)
    held = ev.HeldLease(granted.task, granted.token)
    play.say(ev.TaskFailed(WORKER, held, Failure("USER_CODE", "raised"), permanent=True))
    failure = play.job.view(0.0).failure
    assert failure is not None
    assert failure.code == "USER_CODE"
    assert "the callbacks" in failure.where


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("EarlyStopping",), ("EarlyStopping", "CSVLogger")),
        (("EarlyStopping",), ()),
        ((), ("EarlyStopping",)),
        (("EarlyStopping", "CSVLogger"), ("CSVLogger", "EarlyStopping")),
    ],
)
def test_a_job_goes_on_only_with_the_callbacks_that_it_began_with(
    before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    play = Play(callbacks=before)
    for _ in range(3):
        assert play.step()
    assert Play(saved=play.saved, callbacks=before).step()
    other = Play(saved=play.saved, callbacks=after)
    assert not other.step()
    failure = other.job.view(0.0).failure
    assert failure is not None
    assert failure.code == "MODEL_CONTRACT"
    names = [", ".join(each) or "none" for each in (after, before)]
    assert failure.what == (
        f"the callbacks of the model file are {names[0]}, and this job began with {names[1]}"
    )
    assert failure.where
    assert "another name" in failure.remedy


def test_a_checkpoint_without_names_of_callbacks_is_gone_on_from() -> None:
    play = Play()
    for _ in range(3):
        assert play.step()
    saved = play.saved
    del saved["workflow"]["callbacks"]["names"]
    assert Play(saved=saved, callbacks=("Own",)).step()


def test_a_worker_cannot_give_its_loss_more_weight_than_its_task_has() -> None:
    play = Play()
    play.step()  # the callbacks before the first epoch
    granted = play.say(ev.LeaseRequested(WORKER, INSTANCE))[0]
    assert isinstance(granted, fx.LeaseGranted)
    held = ev.HeldLease(granted.task, granted.token)
    for records, loss in [(2**32 - 1, 1.0), (4, 3.0)]:
        play.version += 1
        version = Version(play.version)
        play.say(ev.MinibatchApplied(WORKER, held, records, version, loss, 0))
    play.say(ev.TaskCompleted(WORKER, held, 2, 2, 4, 4))
    play.run()
    epoch = next(logs for number, _, logs, _ in play.calls if number == 1)
    assert epoch["loss"] > 3.0, "one task with a loss of 2, and one of 10"


def test_a_client_sets_the_learning_rate_and_a_later_master_repeats_only_what_it_lost() -> None:
    play = Play()
    before = play.saved
    play.say(ev.LearningRateRequested(0.25))
    assert play.effects.count(fx.ChangeLearningRate(0.25)) == 1
    view = play.job.view(0.0)
    assert (view.learning_rate, view.requested_rates) == (0.25, 1)
    knows = Play(saved=play.saved)
    knows.say(ev.LearningRateRequested(0.25, 1))
    assert fx.ChangeLearningRate(0.25) not in knows.effects
    lost = Play(saved=before)
    lost.say(ev.LearningRateRequested(0.25, 1))
    assert lost.effects.count(fx.ChangeLearningRate(0.25)) == 1
    assert lost.job.view(0.0).learning_rate == 0.25
    # Without a worker, the parameters of a job that continues are not there yet.
    early = JobStateMachine.restore(replace(SETTINGS, allow_dead_letters=True), (8,), (), before)
    early.handle(ev.Tick(), 0.0)
    assert not early.handle(ev.LearningRateRequested(0.25, 1), 0.0)
    early.handle(ev.WorkerRegistered(WORKER, INSTANCE, "host", 1), 0.0)
    ready = ev.WorkerReady(WORKER, INSTANCE, callbacks=("EarlyStopping",))
    assert fx.ChangeLearningRate(0.25) in early.handle(ready, 0.0)
    # Callbacks get the rate and have the last word.
    play.run()
    assert [rate for *_, rate in play.calls] == [0.25, 0.25, 0.5, 0.5, 0.5]
    (refused,) = play.say(ev.LearningRateRequested(0.1))
    assert refused == fx.Refused("its training is over")
