"""A model that takes the parameter ``schema`` gets the description beside its data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import elasticdl
import recordio
from edl.adapters import data_schema
from edl.app import job_submitter
from edl.core.model_file import takes_parameter
from edl.core.options import Given, Verb
from edl.core.submission import Submission
from edl.use_cases.job_submission import SubmissionPlan
from edl_proto.errors import EdlError
from edl_runtime.model import model_params

MODELS = """
class Table:
    def __init__(self, units=3, *, schema=None): ...
    def default_input(records, mode): ...

class Plain:
    def default_input(records, mode, schema=None): ...

def table(schema): ...

one = Table()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "home"))
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "m.py").write_text(MODELS)
    (tmp_path / "t.csv").write_text("x,y\n1,2\n3,4\n")
    return tmp_path


def prepare(data: object, model: str = "m.Table", **options: object) -> SubmissionPlan:
    given = {"model_zoo": "zoo", "model_def": model, "data": data, "output": "model", **options}
    flags = {name: Given(value, name) for name, value in given.items()}
    return job_submitter().prepare(Verb.TRAIN, flags)


def params(plan: SubmissionPlan) -> dict[str, Any]:
    found = model_params.parse_params(plan.job.params)
    assert plan.description["model"].get("params", "") == plan.job.params
    return found


@pytest.mark.parametrize(
    ("output", "data", "beside"),
    [
        ("rows", "rows", "rows/schema.json"),
        ("rows", "rows/*.recordio", "rows/schema.json"),
        ("rows.recordio", "rows.recordio", "rows.schema.json"),
    ],
)
def test_a_conversion_describes_its_records(
    place: Path, output: str, data: str, beside: str
) -> None:
    schema = elasticdl.convert_data("t.csv", output=output, label="y").schema
    for model in ("m.Table", "m.table"):
        plan = prepare(data, model, params="units=4")
        assert params(plan) == {"units": 4, "schema": schema}
        assert plan.schema == str(place / beside)


def test_both_parts_of_a_split_have_one_description(place: Path) -> None:
    from edl_convert.writer import FileLayout

    (place / "t.csv").write_text("x,y\n" + "1,2\n" * 100)
    elasticdl.convert_data("t.csv", output="rows", layout=FileLayout(split=0.5))
    assert params(prepare(["rows/train", "rows/test"]))["schema"]["rows"] == 100


def test_models_and_data_without_a_description_are_left_as_they_are(place: Path) -> None:
    elasticdl.convert_data("t.csv", output="rows")
    elasticdl.convert_data("t.csv", output="other")
    for model in ("m.Plain", "m.one", "m"):
        plan = prepare("rows", model)
        assert (plan.job.params, plan.schema) == ("", None)
    assert params(prepare("rows", params="schema=None")) == {"schema": None}
    (place / "other" / "schema.json").unlink()
    assert prepare("other").schema is None
    assert prepare("t.csv").schema is None


def test_descriptions_that_do_not_fit_all_data_are_refused(place: Path) -> None:
    elasticdl.convert_data("t.csv", output="rows")
    elasticdl.convert_data("t.csv", output="other")
    for data in (["rows", "other"], ["rows", "t.csv"]):
        with pytest.raises(EdlError, match="describes all of --data") as caught:
            prepare(data)
        assert "rows/schema.json" in caught.value.where
    assert prepare(["rows", "other"], params="schema=None").schema is None


@pytest.mark.parametrize(
    "content",
    [
        *("{", "[]", "{}", json.dumps({"version": 99}), "[" * 100_000, '{"version": 1, "x": NaN}'),
        *('{"version": ' + "9" * 5000 + "}", '{"version": 1, "x": ' + "[" * 500 + "]" * 500 + "}"),
        *("\ufeff{}", "\x1b]0;owned\x07", json.dumps({"version": "\x1b[2J" + "9" * 10_000})),
    ],
)
def test_a_description_that_cannot_be_read_is_named(place: Path, content: str) -> None:
    elasticdl.convert_data("t.csv", output="rows")
    (place / "rows" / "schema.json").write_text(content)
    with pytest.raises(EdlError, match="description of the data cannot be read") as caught:
        prepare("rows")
    assert caught.value.where == str(place / "rows" / "schema.json")
    assert caught.value.what.isprintable()
    assert len(caught.value.what) < 300


def test_data_that_is_not_there_is_the_first_mistake(place: Path) -> None:
    with pytest.raises(EdlError, match="--data"):
        prepare("nowhere/*.recordio")
    (place / "zoo" / "m.py").write_text("class Table(:")
    with pytest.raises(EdlError, match="not valid Python"):
        prepare("t.csv")


def test_a_parameter_belongs_to_the_model_itself() -> None:
    source = "class A:\n    x = 1\n\ndef f(a, *, b): ...\n"
    assert [takes_parameter(source, "f", name) for name in "abc"] == [True, True, False]
    assert not takes_parameter(source, "A", "x")
    assert not takes_parameter(source, "", "a")


def test_records_of_their_own_have_none(place: Path) -> None:
    with recordio.Writer(str(place / "own.recordio")) as writer:
        writer.write(b"no example")
    assert prepare("own.recordio").schema is None


@pytest.fixture
def bucket() -> Iterator[str]:
    """A place in a store that is no local disk."""
    store = fsspec.filesystem("memory")
    yield "memory:///bucket/of/mine"
    store.rm("/bucket", recursive=True)


@pytest.mark.parametrize(
    ("output", "data", "beside"),
    [
        ("rows", "rows", "rows/schema.json"),
        ("rows", "rows/*.recordio", "rows/schema.json"),
        ("rows.recordio", "rows.recordio", "rows.schema.json"),
    ],
)
def test_data_in_a_store_describes_itself(
    place: Path, bucket: str, output: str, data: str, beside: str
) -> None:
    converted = elasticdl.convert_data("t.csv", output=f"{bucket}/{output}", label="y")
    assert converted.output == f"{bucket}/{output}"
    assert fsspec.filesystem("memory").exists(str(converted.files[0]))
    plan = prepare(f"{bucket}/{data}")
    assert params(plan)["schema"] == converted.schema
    assert plan.schema == f"{bucket}/{beside}"


def test_pods_get_the_description_of_what_is_in_a_store(place: Path, bucket: str) -> None:
    elasticdl.convert_data("t.csv", output=f"{bucket}/rows")
    elasticdl.convert_data("t.csv", output="rows")
    for data, found in ((f"{bucket}/rows", f"{bucket}/rows/schema.json"), (f"{place}/rows", None)):
        job = Submission(verb=Verb.TRAIN, model_def="m.Table", data=(data,), platform="kubernetes")
        described, beside = data_schema.describe(job, Path("zoo"))
        assert beside == found
        assert bool(described.params) == (found is not None)


def test_parts_and_thousands_of_files_in_a_store_cost_one_listing_each(
    place: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edl.adapters import storage
    from edl_convert.writer import FileLayout

    (place / "t.csv").write_text("x,y\n" + "1,2\n" * 100)
    layout = FileLayout(split=0.5, records_per_file=1)
    elasticdl.convert_data("t.csv", output=f"{bucket}/rows", layout=layout)
    asked: list[str] = []
    names = storage.names
    monkeypatch.setattr(storage, "names", lambda folder: asked.append(folder) or names(folder))
    plan = prepare([f"{bucket}/rows/train", f"{bucket}/rows/test/*.recordio"])
    assert plan.schema == f"{bucket}/rows/schema.json"
    assert sorted(asked) == [f"{bucket}/rows{part}" for part in ("", "/test", "/train")]


def test_a_store_that_cannot_be_listed_has_no_description(
    place: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edl.adapters import storage

    elasticdl.convert_data("t.csv", output=f"{bucket}/rows.recordio")
    exists = storage.exists

    def failing(error: Exception) -> Callable[[str], bool]:
        def ask(at: str) -> bool:
            if not at.endswith("schema.json"):
                return exists(at)
            raise storage.StoreError(error) from error

        return ask

    monkeypatch.setattr(storage, "exists", failing(PermissionError()))
    assert prepare(f"{bucket}/rows.recordio").schema is None
    monkeypatch.setattr(storage, "exists", failing(TimeoutError()))
    with pytest.raises(EdlError, match="description of the data cannot be read"):
        prepare(f"{bucket}/rows.recordio")
