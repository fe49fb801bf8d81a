"""What is wrong with a study is told before anything starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from plans import make_plan

from edl.plugins.errors import EdlError
from edl.plugins.jobs import JobSubmitter
from edl.plugins.options import Given
from edl_tune.adapters.edl_jobs import options_with
from edl_tune.adapters.study_folder import StudyFolder
from edl_tune.core.plan import StudyPlan, plan_of
from edl_tune.core.search_space import Hyperparameter, ValueChoice, ValueRange, ValueTarget
from edl_tune.planning import StudyRequest, check_same, complete, read_request


def request(
    without: str = "", more: dict[str, Given] | None = None, **changes: Any
) -> StudyRequest:
    flags = {
        "model_zoo": Given("zoo", "--model-zoo"),
        "model_def": Given("circle", "--model-def"),
        "data": Given(("train.csv",), "--data"),
        "validation_data": Given(("test.csv",), "--validation-data"),
    }
    flags = {name: given for name, given in flags.items() if name != without} | (more or {})
    values: dict[str, Any] = {"output": "best", "search": ["units=1..4"], "flags": flags}
    return StudyRequest(**{**values, **changes})


class FakeSubmitter:
    """A ``JobSubmitter`` whose check of the model file finds what a test says."""

    def __init__(self, platform: str = "processes", **facts: Any) -> None:
        self._platform = platform
        self._facts = {"metrics": ["loss", "accuracy"], "search_space": [], **facts}
        self.flags: dict[str, Given] = {}

    def prepare(self, verb: object, flags: dict[str, Given]) -> Any:
        self.flags = flags
        return SimpleNamespace(job=SimpleNamespace(platform=self._platform))

    def dry_run(self, plan: object) -> Any:
        return SimpleNamespace(facts=self._facts)


def fill(plan: StudyPlan, **facts: Any) -> StudyPlan:
    return complete(plan, cast(JobSubmitter, FakeSubmitter(**facts)))


def test_paths_and_limits_become_a_plan(tmp_path: Path) -> None:
    plan = read_request(request(name="s"), tmp_path)
    assert (plan.trials, plan.parallel, plan.sampler, plan.pruner) == (20, 1, "tpe", "none")
    assert plan.options["data"] == [str(tmp_path / "train.csv")]
    assert plan.output == str(tmp_path / "best")
    assert plan_of(plan.to_dict()) == plan


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"without": "data"}, "needs the option --data"),
        ({"output": ""}, "needs the option --output"),
        ({"without": "validation_data"}, "on validation data, and there is none"),
        ({"search": ["units=4..1"]}, "is empty"),
        ({"search": ["num-epochs=1,2"]}, "--num-epochs cannot be searched"),
        ({"objective": "val_count"}, "more of it is better"),
        ({"name": "My Study"}, "upper-case"),
        ({"more": {"seed": Given("abc", "--seed")}}, "abc"),
        ({"name": "s" * 50}, "the limit is 48"),
    ],
)
def test_wrong_options_are_told(tmp_path: Path, changes: dict[str, Any], what: str) -> None:
    with pytest.raises(EdlError, match=what) as caught:
        read_request(request(**changes), tmp_path)
    assert caught.value.remedy


def test_settings_of_the_project_have_less_weight_than_options(tmp_path: Path) -> None:
    (tmp_path / "edl.toml").write_text(
        '[tune]\ntrials = 7\nobjective = "val_mae"\n[tune.search]\nunits = [1, 2]\nrate = "0.0..1"'
    )
    plan = read_request(request(trials=3), tmp_path)
    assert plan.trials == 3
    assert plan.objective.name == "val_mae"
    assert plan.search == {"units": "1..4", "rate": "0..1"}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("trails = 7", "no setting trails"),
        ("trials = 0", "trials is 0"),
        ('sampler = "best"', "sampler is 'best'"),
        ("search = 3", "search is no table"),
        ("objective = 3", "objective is no text"),
    ],
)
def test_wrong_settings_are_told_with_their_place(tmp_path: Path, line: str, what: str) -> None:
    (tmp_path / "edl.toml").write_text(f"[tune]\n{line}\n")
    with pytest.raises(EdlError, match=what) as caught:
        read_request(request(), tmp_path)
    assert caught.value.where.startswith(str(tmp_path / "edl.toml"))


def test_trials_do_not_share_a_folder_of_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "edl.toml").write_text('checkpoint-dir = "checkpoints"\n')
    with pytest.raises(EdlError, match="cannot share --checkpoint-dir"):
        read_request(request(), tmp_path)


ASKED = [
    {"name": "units", "type": "int", "low": 8, "high": 32, "step": 8, "log": False},
    {"name": "drop", "type": "choice", "values": [False, True]},
]


def test_the_search_space_of_the_file_is_that_of_the_study() -> None:
    plan = fill(make_plan(space=()), search_space=ASKED)
    assert plan.space == (
        Hyperparameter("units", ValueRange(8, 32, 8), ValueTarget.HP),
        Hyperparameter("drop", ValueChoice((False, True)), ValueTarget.HP),
    )
    given = Hyperparameter("units", ValueChoice((1, 2)))
    plan = fill(make_plan(space=(given,)), search_space=ASKED)
    assert plan.space[0] == Hyperparameter("units", ValueChoice((1, 2)), ValueTarget.HP)
    assert len(plan.space) == 2


def test_the_check_has_the_first_values() -> None:
    submitter = FakeSubmitter()
    complete(make_plan(), cast(JobSubmitter, submitter))
    assert submitter.flags["params"].value == {"x": 0.0}


@pytest.mark.parametrize(
    ("plan", "facts", "what"),
    [
        (make_plan(space=()), {}, "nothing to search"),
        (make_plan(), {"metrics": ["loss"]}, "no val_accuracy"),
        (make_plan(sampler="grid"), {}, "has no end"),
        (make_plan(), {"platform": "kubernetes"}, "not on kubernetes"),
    ],
)
def test_what_the_model_file_lacks_is_told(
    plan: StudyPlan, facts: dict[str, Any], what: str
) -> None:
    with pytest.raises(EdlError, match=what) as caught:
        fill(plan, **facts)
    assert caught.value.remedy


def test_a_grid_has_no_more_trials_than_combinations() -> None:
    plan = fill(make_plan(space=(), sampler="grid", trials=50), search_space=ASKED)
    assert plan.trials == 8
    assert plan.with_limits(50, None).trials == 8


def test_values_reach_the_job_where_they_belong() -> None:
    space = (
        Hyperparameter("units", ValueRange(1, 4), ValueTarget.HP),
        Hyperparameter("depth", ValueRange(1, 4)),
        Hyperparameter("minibatch-size", ValueChoice((8,)), ValueTarget.OPTION),
        Hyperparameter("learning-rate", ValueChoice((0.1,)), ValueTarget.OPTION),
    )
    plan = make_plan(space=space, options={"params": "size=3, hp={'drop': True}", "seed": 1})
    values = {"units": 2, "depth": 4, "minibatch-size": 8, "learning-rate": 0.1}
    assert options_with(plan, values) == {
        "params": {"size": 3, "depth": 4, "hp": {"drop": True, "units": 2}},
        "minibatch_size": 8,
        "set": "learning-rate=0.1",
        "seed": 1,
    }


def test_another_study_of_the_name_is_refused() -> None:
    check_same(make_plan(trials=9, parallel=1, seed=3, code="/copy"), make_plan())
    for changes in ({"search": {"x": "0..2"}}, {"options": {"data": ["/other"]}}):
        with pytest.raises(EdlError, match=r"with another (search|data)"):
            check_same(make_plan(**changes), make_plan())


def test_one_command_has_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDL_HOME", str(tmp_path))
    folder = StudyFolder("s")
    with pytest.raises(EdlError, match="no study named s"):
        folder.read_plan()
    with folder.lock():
        folder.write_plan(make_plan(name="s"))
        with pytest.raises(EdlError, match="another command runs"), StudyFolder("s").lock():
            pass
    with StudyFolder("s").lock():
        assert folder.read_plan() == make_plan(name="s")


def test_the_best_model_replaces_only_one_of_the_study(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("EDL_HOME", str(tmp_path))
    folder, output = StudyFolder("s"), tmp_path / "best"
    with folder.lock():
        for trial in (1, 2):
            (tmp_path / str(trial)).mkdir()
            (tmp_path / str(trial) / "model").write_text(str(trial))
            folder.publish(tmp_path / str(trial), output, trial)
            assert (output / "model").read_text() == str(trial)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "best", "studies"]
    with StudyFolder("other").lock(), pytest.raises(EdlError, match="cannot be copied"):
        StudyFolder("other").publish(tmp_path / "1", output, 1)
    assert (output / "model").read_text() == "2"
