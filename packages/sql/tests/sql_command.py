"""The command ``edl sql`` in a folder with a table of people, models and a zoo."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from edl.__main__ import run
from edl_proto.v1 import model_pb2
from edl_testing.command import Done

Call = Callable[..., Done]
TRAIN_M = "SELECT role, wage FROM people TRAIN a.B LABEL wage INTO m"


class Killed(BaseException):
    """Raised in place of SIGKILL: only ``finally`` and ``with`` still run."""


def prepare_folder() -> None:
    """Make a table of people, a model of them, damaged models, and a model zoo."""
    with sqlite3.connect("my.db") as database:
        database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, role TEXT, wage REAL)")
        database.execute("INSERT INTO people VALUES (1, 'boss', 5.5), (2, 'clerk', 2.5)")
        database.execute("CREATE TABLE keyless (id INT, role TEXT)")
        database.execute("INSERT INTO keyless VALUES (1, 'boss')")
    database.close()
    model = Path("models/wages")
    model.mkdir(parents=True)
    about = {"statement": "SELECT … INTO wages", "label": "wage", "classes": []}
    about |= {"is_classifier": False, "texts": {"role": True}}
    (model / "statement.json").write_text(json.dumps(about))
    for name, content in {
        "damaged": '{"statement": "SEL',
        "deep": "[" * 100_000,
        "incomplete": '{"statement": "SELECT 1", "label": "wage"}',
        "foreign": json.dumps({**about, "texts": {"role": "yes"}}),
        "a_list": "[]",
    }.items():
        Path("models", name).mkdir()
        Path("models", name, "statement.json").write_text(content)
    Path("model_zoo").mkdir()
    for name in ("a.py", "regressor.py", "classifier.py"):
        Path("model_zoo", name).write_text("class B: pass\n\n\nclass DNN: pass\n")
    Path("model_zoo", "net.py").write_text(
        "def M(units: int = 1, rate=0.1, widths: list[int] = [8], schema=None): pass\n"
        "def closeness(labels, predictions): pass\n"
    )


def caller(capsys: pytest.CaptureFixture[str]) -> Call:
    """The command, with the database of ``prepare_folder``."""

    def call(*args: str, code: int = 0) -> Done:
        capsys.readouterr()
        done = Done(args, run(["sql", "--db", "sqlite:///my.db", *args]), *capsys.readouterr())
        assert done.code == code, str(done)
        return done

    return call


def write_model(place: str, job: str) -> None:
    """Write the model that the job leaves at the output."""
    model = model_pb2.TrainedModel(model_def="a.B", job=job)
    system, path = fsspec.core.url_to_fs(place)
    system.makedirs(path, exist_ok=True)
    system.pipe_file(f"{path}/trained_model.pb", model.SerializeToString())
