"""Trials in Optuna's storage, with Optuna's samplers and pruners."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial

from edl_tune.core.plan import StudyPlan
from edl_tune.core.search_space import Hyperparameter, Value, ValueRange, grid_of
from edl_tune.core.trials import Trial, TrialResult, TrialState

_RESULT, _PRUNED, _STOPPED = "result", "pruned", "stopped"
"""Attributes of Optuna's trials: what a job did, whether it is to be pruned or was stopped."""

_STATES = {
    optuna.trial.TrialState.RUNNING: TrialState.OPEN,
    optuna.trial.TrialState.WAITING: TrialState.OPEN,
    optuna.trial.TrialState.COMPLETE: TrialState.COMPLETE,
    optuna.trial.TrialState.PRUNED: TrialState.PRUNED,
    optuna.trial.TrialState.FAIL: TrialState.FAILED,
}
_OPTUNA_STATES = {
    TrialState.COMPLETE: optuna.trial.TrialState.COMPLETE,
    TrialState.PRUNED: optuna.trial.TrialState.PRUNED,
    TrialState.FAILED: optuna.trial.TrialState.FAIL,
    TrialState.STOPPED: optuna.trial.TrialState.FAIL,
}
_SEEDS = 2**32


class OptunaStore:
    """A ``TrialStore`` in a file that Optuna's own tools read, too.

    Args:
        file: Optuna's journal. The caller has it alone.
    """

    def __init__(self, file: Path, plan: StudyPlan) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        _clean(file)
        self._storage = JournalStorage(JournalFileBackend(str(file)))
        self._plan = plan
        self._study = optuna.create_study(
            storage=self._storage,
            study_name=plan.name,
            direction="maximize" if plan.objective.is_maximized else "minimize",
            sampler=_sampler(plan, 0),
            pruner=_pruner(plan),
            load_if_exists=True,
        )
        self._study_id = self._storage.get_study_id_from_name(plan.name)
        for each in self._study.get_trials(deepcopy=False):
            if not each.state.is_finished():
                self._suggest(each.number)  # the values that an interrupted proposal lacks

    def trials(self) -> Sequence[Trial]:
        """Return all trials by number; see ``TrialStore``."""
        space = {each.name: each for each in self._plan.space}
        return [_read(each, space) for each in self._study.get_trials(deepcopy=False)]

    def propose(self) -> Trial:
        """Return a new trial; see ``TrialStore``."""
        number = len(self._study.get_trials(deepcopy=False))
        # A seed for each number: a study goes on with the same values after an interruption.
        self._study.sampler = _sampler(self._plan, number)
        self._study.ask()
        return Trial(number, self._suggest(number))

    def report(self, number: int, evaluation: int, value: float) -> bool:
        """Record a value, and ask the pruner; see ``TrialStore``."""
        trial = self._trial(number)
        trial.report(value, evaluation)
        return trial.should_prune()

    def mark_pruned(self, number: int) -> None:
        """Record that a trial is to be pruned; see ``TrialStore``."""
        self._trial(number).set_user_attr(_PRUNED, True)

    def finish(self, number: int, state: TrialState, result: TrialResult) -> None:
        """Record the end of a trial; see ``TrialStore``."""
        if self._frozen(number).state.is_finished():
            return
        trial = self._trial(number)
        trial.set_user_attr(_RESULT, {**asdict(result), "metrics": dict(result.metrics)})
        if state is TrialState.STOPPED:
            trial.set_user_attr(_STOPPED, True)
        value = result.objective if state is TrialState.COMPLETE else None
        self._study.sampler = RandomSampler()  # that of a grid would end Optuna's own loop
        self._study.tell(number, value, state=_OPTUNA_STATES[state])

    def _suggest(self, number: int) -> dict[str, Value]:
        """Return the values of a trial; those that it has are kept."""
        self._study.sampler = _sampler(self._plan, number)
        trial, values = self._trial(number), dict[str, Value]()
        for each in self._plan.space:
            if each.is_searched(values):
                values[each.name] = _suggest_one(trial, each)
        return values

    def _trial(self, number: int) -> optuna.Trial:
        storage = self._storage
        trial_id = storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        return optuna.Trial(self._study, trial_id)

    def _frozen(self, number: int) -> FrozenTrial:
        return self._study.get_trials(deepcopy=False)[number]


def _clean(file: Path) -> None:
    """Remove what a killed process has left: its lock, and half a line, which changes nothing."""
    for lock in file.parent.glob(f"{file.name}.lock*"):
        lock.unlink(missing_ok=True)
    if file.exists():
        content = file.read_bytes()
        with file.open("r+b") as opened:
            opened.truncate(content.rfind(b"\n") + 1)


def _sampler(plan: StudyPlan, number: int) -> BaseSampler:
    seed = (plan.seed + number * 2654435761) % _SEEDS
    match plan.sampler:
        case "random":
            return RandomSampler(seed)
        case "grid":
            grid = {name: list(map(_text_of, vs)) for name, vs in grid_of(plan.space).items()}
            return GridSampler(grid, plan.seed)
        case _:
            return TPESampler(seed=seed, constant_liar=plan.parallel > 1)


def _pruner(plan: StudyPlan) -> optuna.pruners.BasePruner:
    if plan.pruner == "asha":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=plan.min_epochs)
    return optuna.pruners.NopPruner()


def _suggest_one(trial: optuna.Trial, each: Hyperparameter) -> Value:
    domain = each.domain
    if not isinstance(domain, ValueRange):
        # Optuna keeps no lists: their texts stand for them.
        chosen = trial.suggest_categorical(each.name, [_text_of(value) for value in domain.values])
        return _value_of(each, chosen)
    if domain.is_integer:
        step, low, high = int(domain.step or 1), int(domain.low), int(domain.high)
        return trial.suggest_int(each.name, low, high, step=step, log=domain.is_log)
    return trial.suggest_float(
        each.name, domain.low, domain.high, step=domain.step, log=domain.is_log
    )


def _text_of(value: Value) -> Any:
    return str(value) if isinstance(value, list) else value


def _value_of(each: Hyperparameter, stored: Any) -> Value:
    values = each.domain.values or ()
    return next((v for v in values if isinstance(v, list) and str(v) == stored), stored)


def _read(trial: FrozenTrial, space: Mapping[str, Hyperparameter]) -> Trial:
    attributes = trial.user_attrs
    state = TrialState.STOPPED if attributes.get(_STOPPED) else _STATES[trial.state]
    return Trial(
        trial.number,
        {name: _value_of(space[name], value) for name, value in trial.params.items()},
        state if trial.state.is_finished() else TrialState.OPEN,
        dict(trial.intermediate_values),
        bool(attributes.get(_PRUNED)),
        TrialResult(**attributes.get(_RESULT, {})),
    )
