"""``edl sql``: the jobs that train its models, and what killed statements leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import pytest
from sql_command import TRAIN_M, Call, Killed, caller, prepare_folder, write_model

from edl.api_errors import for_python
from edl.core import exit_codes
from edl.core.exit_numbers import INTERRUPTED
from edl.core.job_result import JobResult
from edl_proto.errors import EdlError, ErrorCode


@pytest.fixture
def sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """The command with statements for a table of people and a model of them."""
    monkeypatch.chdir(tmp_path)
    prepare_folder()
    return caller(capsys)


def test_what_a_model_is_trained_with(sql: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[dict[str, Any]] = []

    def train(**options: Any) -> JobResult:
        Path(options["output"]).mkdir()
        jobs.append(options)
        return JobResult("job", "SUCCEEDED")

    monkeypatch.setattr("edl.api.train", train)
    Path("model_zoo/anomaly.py").write_text("class Unlike:\n    learns_label = False\n")
    rest = "WITH a=1, train.epoch=3, validation.metrics='Accuracy,AUC'"
    done = sql(
        "-e",
        f"SELECT * FROM people TO TRAIN a.B {rest} COLUMN EMBEDDING(role, 8) INTO m;"
        "SELECT id, role FROM people TO TRAIN anomaly.Unlike COLUMN role INTO unlike;",
    )
    labelled, unlabelled = jobs
    schema = labelled["params"].pop("schema")
    assert labelled["params"] == {"a": 1, "columns": [["EMBEDDING", "role", 8]]}
    assert (labelled["num_epochs"], labelled["eval_metrics_fn"]) == (3, "accuracy,AUC")
    assert (schema["label"], [c["name"] for c in schema["columns"]]) == ("label", ["role", "label"])
    assert "the label is wage, the last column" in done.err
    schema = unlabelled["params"].pop("schema")
    assert (schema["label"], [c["name"] for c in schema["columns"]]) == (None, ["role"])
    assert unlabelled["params"] == {}
    about = json.loads(Path("models/unlike/statement.json").read_text())
    assert (about["label"], about["texts"]) == ("", {"role": True})


def test_models_are_in_a_store(sql: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    place = "memory://bucket/models"

    def train(**options: Any) -> JobResult:
        assert options["output"] == f"{place}/m"
        fsspec.filesystem("memory").pipe("/bucket/models/m/trained_model.pb", b"a model")
        return JobResult("job", "SUCCEEDED")

    monkeypatch.setattr("edl.api.train", train)
    statement = "SELECT role, wage FROM people TRAIN a.B LABEL wage INTO m"
    there = ("--models", place)
    assert f"the model m is in {place}/m" in sql(*there, "-e", statement).err
    assert sql(*there, "-e", "SHOW TRAIN m").out == f"{statement}\n"
    assert "there is a model m already" in sql(*there, "-e", statement, code=2).err
    evaluated: list[str] = []

    def evaluate(*, trained_model: str, **_: object) -> JobResult:
        evaluated.append(trained_model)
        return JobResult("job", "SUCCEEDED", metrics={"loss": 2})

    monkeypatch.setattr("edl.api.evaluate", evaluate)
    sql(*there, "-e", "SELECT role, wage FROM people TO EVALUATE m")
    assert evaluated == [f"{place}/m"]
    other = sql(*there, "-e", "SHOW TRAIN n", code=4).err
    assert "no statement has trained a model n here" in other
    unknown = sql("--models", "nosuch://bucket/models", "-e", "SHOW TRAIN n", code=4).err
    assert "the store of the models cannot be accessed: Protocol not known: nosuch" in unknown


def test_a_store_that_takes_no_model_is_found_before_rows_are_read(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read only")

    monkeypatch.setattr("edl_convert.api.convert_data", None)
    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "pipe_file", refuse)
    statement = "SELECT role, wage FROM people TRAIN a.B LABEL wage INTO m"
    refused = sql("--models", "memory://none/models", "-e", statement, code=7).err
    assert "no model can be written there: the store denies access: read only" in refused
    assert "where: memory://none/models/m, line 1, column 57\n" in refused


def kill_statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kill every statement that trains once its job has begun; return the names of the jobs."""
    jobs: list[str] = []

    def train(**options: Any) -> JobResult:
        jobs.append(options["name"])
        raise Killed

    monkeypatch.setattr("edl.api.train", train)
    return jobs


def files_of(place: str) -> list[str]:
    system, path = fsspec.core.url_to_fs(place)
    return sorted(found.removeprefix(path).lstrip("/") for found in system.find(path))


@pytest.mark.parametrize("place", ["kept", "memory://bucket/kept"])
def test_a_model_whose_statement_was_killed_is_found_when_its_job_is_done(
    sql: Call, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    jobs = kill_statements(monkeypatch)
    fake = FakeJobs(is_over=False)
    monkeypatch.setattr("edl_sql.statement_runner.job_catalog", lambda options: fake)
    models = ("--models", place)
    with pytest.raises(Killed):
        sql(*models, "-e", TRAIN_M)
    told = sql(*models, "-e", "SHOW TRAIN m", code=4).err
    assert "the model m is not there yet" in told
    assert f"edl status {jobs[0]}" in told
    fake.is_over = True
    told = sql(*models, "-e", "SHOW TRAIN m", code=4).err
    assert "there is no model m: the job that was to train it is over" in told
    assert f"edl status {jobs[0]} shows how it ended. Then run TRAIN again." in told
    write_model(f"{place}/m", jobs[0])
    assert sql(*models, "-e", "SHOW TRAIN m").out == f"{TRAIN_M}\n"
    assert files_of(place) == ["m/statement.json", "m/trained_model.pb"]
    assert sql(*models, "-e", "SHOW TRAIN m").out == f"{TRAIN_M}\n"
    assert "there is a model m already" in sql(*models, "-e", TRAIN_M, code=2).err
    if "://" in place:
        fsspec.filesystem("memory").rm("/bucket", recursive=True)


def test_a_model_of_another_job_is_not_taken_for_the_killed_statement_s(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_statements(monkeypatch)
    with pytest.raises(Killed):
        sql("-e", TRAIN_M)
    write_model("models/m", "another-job")
    told = sql("-e", "SHOW TRAIN m", code=4).err
    assert "no statement has trained a model m" in told
    assert "edl predict --trained-model may still use it" in told
    assert "delete the folder" in sql("-e", TRAIN_M, code=2).err


def test_a_statement_whose_job_was_not_started_leaves_nothing(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(**_: Any) -> JobResult:
        assert files_of("new"), "what is kept about the model comes first"
        raise EdlError(ErrorCode.USAGE, "no", where="", remedy="")

    monkeypatch.setattr("edl.api.train", train)
    sql("--models", "new", "-e", TRAIN_M, code=2)
    assert files_of("new") == []


def test_a_statement_that_was_killed_before_its_job_began_names_no_job(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_statements(monkeypatch)
    with pytest.raises(Killed):
        sql("-e", TRAIN_M)
    for statement in ("SHOW TRAIN m", "SELECT role, wage FROM people TO EVALUATE m"):
        told = sql("-e", statement, code=4).err
        assert "there is no model m: no job of this machine trains it" in told
        assert "edl status" not in told
        assert "Run TRAIN again" in told


def test_a_job_that_fails_advises_to_run_the_statement_again(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are gone, so neither ``edl resume`` nor another submission helps."""
    steps = "edl resume a-job starts it again."
    remedies = [f"Mend it. {steps}", steps]

    @for_python
    def train(**_: Any) -> JobResult:
        raise EdlError(ErrorCode.USER_CODE, "no", where="a.py:1", remedy=remedies.pop(0))

    fake = FakeJobs(is_over=True)
    monkeypatch.setattr("edl.api.train", train)
    monkeypatch.setattr("edl.api.evaluate", train)
    monkeypatch.setattr("edl_sql.statement_runner.job_catalog", lambda options: fake)
    for statement in (TRAIN_M, "SELECT role, wage FROM people TO EVALUATE wages"):
        failed = sql("-e", statement, code=4).err
        begins = "Mend it. Then run" if remedies else "Run"
        assert f"what to do: {begins} the statement again" in failed
        assert "resume" not in failed


@pytest.mark.parametrize("is_over", [True, False])
def test_what_is_kept_about_a_model_goes_with_a_job_that_has_failed(
    sql: Call, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    """The records of the job are gone, so nothing can finish it."""

    def train(**_: Any) -> JobResult:
        raise EdlError(ErrorCode.MODEL_CONTRACT, "no", where="", remedy="")

    monkeypatch.setattr("edl.api.train", train)
    monkeypatch.setattr("edl_sql.statement_runner.job_catalog", lambda options: FakeJobs(is_over))
    sql("--models", "new", "-e", TRAIN_M, code=4)
    assert bool(files_of("new")) == (not is_over)


class FakeJobs:
    """A fake of the catalog, all backends and the watcher of one job."""

    def __init__(self, is_over: bool) -> None:
        self.is_over = is_over
        self.stopped: list[str] = []
        self.continuation = self

    def next_steps(self, status: FakeJobs) -> str:
        return "edl resume a-job starts it again."

    def has(self, name: str) -> bool:
        return True

    def find(self, name: str) -> FakeJobs:
        return self

    def status(self, name: str = "") -> FakeJobs:
        return self

    def stop(self, reason: str) -> None:
        self.stopped.append(reason)

    def run(self) -> None:
        self.is_over = True


def test_a_model_that_is_being_trained_is_not_trained_twice(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = kill_statements(monkeypatch)
    fake = FakeJobs(is_over=False)
    monkeypatch.setattr("edl_sql.statement_runner.job_catalog", lambda options: fake)
    with pytest.raises(Killed):
        sql("-e", TRAIN_M)
    told = sql("-e", TRAIN_M, code=2).err
    assert f"the job {jobs[0]} is training a model m" in told
    assert len(jobs) == 1
    fake.is_over = True  # and has left no model
    with pytest.raises(Killed):
        sql("-e", TRAIN_M)
    first, second = jobs
    assert first != second
    assert [file for file in files_of("models") if ".m." in file] == [f".m.{second}.statement.json"]


def test_ctrl_c_ends_the_job_before_its_records_go(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeJobs(is_over=False)
    records: list[Path] = []

    def train(*, data: list[str], **_: Any) -> JobResult:
        records.append(Path(data[0]))
        raise KeyboardInterrupt

    def run(self: FakeJobs) -> None:
        assert records[0].is_dir()
        self.is_over = True

    monkeypatch.setattr(FakeJobs, "run", run)
    monkeypatch.setattr("edl.api.train", train)
    monkeypatch.setattr("edl_sql.statement_runner.job_catalog", lambda options: fake)
    monkeypatch.setattr("edl_sql.statement_jobs.JobWatcher", lambda *_: fake)
    done = sql("-e", TRAIN_M, code=INTERRUPTED)
    assert "stopping a-b-" in done.err
    assert fake.is_over
    assert fake.stopped == ["edl sql was interrupted"]
    assert not records[0].exists()


def test_jobs_have_the_options_of_the_command(sql: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[dict[str, Any]] = []

    def train(**options: Any) -> JobResult:
        Path(options["output"]).mkdir()
        jobs.append(options)
        return JobResult("job", "SUCCEEDED")

    def predict(**options: Any) -> JobResult:
        jobs.append(options)
        raise EdlError(ErrorCode.STOPPED, "enough", where="", remedy="")

    monkeypatch.setattr("edl.api.train", train)
    monkeypatch.setattr("edl.api.predict", predict)
    failed = sql(
        *("--platform", "docker", "--num-workers", "2", "--env", "A=1", "--allow-dead-letters"),
        *("--git-credential", "mine", "--trusted-images", "here/us", "--work-dir", "records/here"),
        "-e",
        "SELECT * FROM people TRAIN a.B INTO m;"
        "SELECT * FROM people TRAIN a.B WITH train.num_workers=3, train.strategy='allreduce'"
        " INTO n;"
        "SELECT * FROM people PREDICT people.p USING wages",
        code=exit_codes.present("STOPPED").exit_code,
    )
    assert "enough" in failed.err
    first, second, third = jobs
    everywhere = {"platform": "docker", "env": ("A=1",), "allow_dead_letters": True}
    for job in jobs:
        assert everywhere.items() <= job.items()
        assert Path(job["data"][0]).parent.parent == Path("records/here")
    assert [job["num_workers"] for job in jobs] == ["2", 3, "2"]
    assert [job.get("strategy") for job in jobs] == [None, "allreduce", None]
    assert (first["git_credential"], second["git_credential"]) == ("mine", "mine")
    assert "git_credential" not in third
    assert third["trusted_images"] == "here/us"
    assert "trusted_images" not in first
    assert list(Path("records/here").iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--platform", "cloud"), "--platform: "),
        (("--num-workers", "0"), "--num-workers: "),
        (("--name", "one"), "there is no option --name"),
    ],
)
def test_a_wrong_option_is_refused_before_rows_are_read(
    sql: Call, flags: tuple[str, ...], words: str
) -> None:
    assert words in sql(*flags, "-e", "SELECT * FROM none TRAIN a.B INTO m", code=2).err


def test_jobs_are_looked_for_where_statements_run_them(
    sql: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def find_jobs(options: Any) -> FakeJobs:
        asked.append(options)
        return FakeJobs(is_over=True)

    monkeypatch.setattr("edl_sql.statement_runner.job_catalog", find_jobs)
    sql("--platform", "kubernetes", "--namespace", "team-a", "-e", "SHOW MODELS")
    assert asked == [{"platform": "kubernetes", "namespace": "team-a"}]


def test_records_for_jobs_are_in_no_store(sql: Call) -> None:
    refused = sql("-e", "SHOW MODELS", "--work-dir", "s3://bucket/rows", code=2).err
    assert "no folder: s3://bucket/rows\n  where: --work-dir" in refused
    assert not Path("s3:").exists()
