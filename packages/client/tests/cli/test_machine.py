"""``edl zoo``, ``doctor``, ``version`` and ``completion``."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Edl

import recordio
import recordio.example

# A worker's check, without TensorFlow: what it finds is written in the model file itself.
CHECKER = """
import json, sys
from google.protobuf import json_format
from edl_proto.v1 import job_pb2
path = sys.argv[sys.argv.index("--spec") + 1]
spec = json_format.Parse(open(path).read(), job_pb2.JobSpec())
source = open(f"{spec.model.model_zoo}/{spec.model.model_def}.py").read()
errors = [
    {"code": "MODEL_CONTRACT", "what": f"there is no {name}", "where": path, "remedy": "write it"}
    for name in ("loss", "optimizer") if f"def {name}(" not in source
]
print("the model file says hello")
print(json.dumps({"ok": not errors, "errors": errors}))
"""


@pytest.fixture
def checked(edl: Edl) -> Edl:
    """The command with an interpreter whose edl_worker is the script above."""
    fake = edl.place / "fake"
    (fake / "edl_worker").mkdir(parents=True)
    (fake / "edl_worker" / "__init__.py").touch()
    (fake / "edl_worker" / "__main__.py").write_text(CHECKER)
    edl.extra["PYTHONPATH"] = str(fake)
    return edl


def test_a_new_zoo_is_whole_and_its_data_is_real(edl: Edl) -> None:
    done = edl("zoo", "init", "mine", "-o", "json")
    zoo = edl.place / "mine"
    assert done.json["files"] == [
        "README.md", "circle.py", "data/test.recordio", "data/train.recordio", "requirements.txt",
    ]  # fmt: skip
    compile((zoo / "circle.py").read_text(), "circle.py", "exec")
    points = [
        recordio.example.decode(record)
        for record in recordio.open_source(str(zoo / "data/train.recordio")).read(0, 5000)
    ]
    assert len(points) == 2000
    assert all(
        (point["x"][0] ** 2 + point["y"][0] ** 2 < 0.8) == bool(point["label"][0])
        for point in points
    )
    assert 0.4 < sum(point["label"][0] for point in points) / 2000 < 0.8


def test_a_new_zoo_spares_what_is_there(edl: Edl) -> None:
    done = edl.run("zoo", "init", "zoo")
    assert done.code == 5
    assert [path.name for path in (edl.place / "zoo").iterdir()] == ["mine.py"]
    (edl.place / "empty").mkdir()
    assert "edl train" in edl("zoo", "init", "empty").out


def test_the_command_of_a_new_zoo_can_be_pasted(edl: Edl) -> None:
    done = edl("zoo", "init", "l'été 1")
    words = shlex.split(done.out.splitlines()[-1])
    for option in ("--model-zoo", "--data", "--validation-data"):
        assert (edl.place / words[words.index(option) + 1]).exists()


def test_check_reports_all_errors_at_once(checked: Edl) -> None:
    (checked.place / "zoo" / "mine.py").write_text("model = 1")
    done = checked.run("zoo", "check", "--model-zoo", "zoo", "--model-def", "mine", "-o", "json")
    assert done.code == 4
    assert [error["what"] for error in done.json["errors"]] == [
        "there is no loss", "there is no optimizer",
    ]  # fmt: skip
    assert "there is no loss" in done.err
    assert "there is no optimizer" in done.err
    assert "2 errors" in done.err


def test_check_of_a_good_model_file(checked: Edl) -> None:
    done = checked("zoo", "check", "--model_zoo", "zoo", "--model_def", "mine")
    assert done.out == "mine: no errors\n"
    assert checked("zoo", "check", "--model-zoo=zoo", "--model-def=mine", "-o", "json").json["ok"]


def test_check_of_what_is_not_there(checked: Edl) -> None:
    assert checked.run("zoo", "check", "--model-zoo", "zoo", "--model-def", "his").code == 4
    assert checked.run("zoo", "check", "--model-zoo", "zoo").code == 2


def test_a_check_without_a_verdict_says_why(checked: Edl) -> None:
    (checked.place / "fake" / "edl_worker" / "__main__.py").write_text("raise SystemExit('oh no')")
    done = checked.run("zoo", "check", "--model-zoo", "zoo", "--model-def", "mine")
    assert done.code == 4
    assert "oh no" in done.err


def test_doctor_names_what_is_missing(edl: Edl) -> None:
    (edl.place / "fake" / "tensorflow").mkdir(parents=True)
    (edl.place / "fake" / "tensorflow" / "__init__.py").write_text(
        "import os\nraise ImportError('no such luck', os.environ['KERAS_BACKEND'])"
    )
    edl.extra["KERAS_BACKEND"] = "torch"
    edl.extra["PYTHONPATH"] = str(edl.place / "fake")
    edl.extra["EDL_ENGINE"] = "unix:///nowhere/docker.sock"
    done = edl.run("doctor", "-o", "json")
    assert done.code == 1
    assert not done.json["ok"]
    found = {one["subject"]: one for one in done.json["findings"]}
    assert found["tensorflow"]["grade"] == "missing"
    assert "('no such luck', 'tensorflow')" in found["tensorflow"]["what"]
    assert found["tensorflow"]["remedy"]
    assert found["containers"]["grade"] == "note"
    assert "/nowhere/docker.sock" in found["containers"]["what"]
    assert found["edl-proto"]["grade"] == "ok"
    assert found["EDL_HOME"]["grade"] == "ok"


def test_doctor_finds_an_interpreter_and_a_home_that_do_not_work(edl: Edl) -> None:
    (edl.place / "file").touch()
    edl.extra["EDL_PYTHON"] = "/nowhere/python"
    edl.extra["EDL_HOME"] = str(edl.place / "file" / "home")
    done = edl.run("doctor")
    assert done.code == 1
    assert "/nowhere/python does not run" in done.out
    assert "EDL_PYTHON" in done.out
    assert "cannot be written" in done.out


def test_versions(edl: Edl) -> None:
    assert edl("version", "-o", "json").json["edl"] == edl("--version").out.split()[1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(edl: Edl, shell: str) -> None:
    assert "_EDL_COMPLETE" in edl("completion", shell).out


def complete(edl: Edl, line: str) -> list[str]:
    words = line.split(" ")
    done = edl.run(
        env={
            **edl.env,
            "_EDL_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        }
    )
    assert done.code == 0, str(done)
    return [word.partition(",")[2] for word in done.out.split()]


def test_commands_and_options_are_completed(edl: Edl) -> None:
    assert complete(edl, "edl st") == ["status", "stop"]
    assert complete(edl, "edl train --num-") == ["--num-epochs", "--num-workers"]
    assert complete(edl, "edl data ") == ["convert", "load", "inspect"]
    assert complete(edl, "edl completion z") == ["zsh"]


def test_a_broken_settings_file_is_named_and_spoils_neither_help_nor_completion(edl: Edl) -> None:
    (edl.place / "edl.toml").write_text("platform = ")
    done = edl.run("list")
    assert done.code == 2, str(done)
    assert str(edl.place / "edl.toml") in done.err
    assert edl("list", "--platform", "processes").code == 0
    assert "Usage" in edl("--help").out
    assert complete(edl, "edl status ") == []


def test_bash_can_read_its_script(edl: Edl) -> None:
    script = edl("completion", "bash").out
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_command_is_installed_under_both_names() -> None:
    folder = Path(sys.executable).parent
    if not (folder / "edl").exists():
        pytest.skip("not installed as a command here")
    for name in ("edl", "elasticdl"):
        done = subprocess.run(
            [str(folder / name), "--help"], capture_output=True, text=True, check=True,
            env={**os.environ, "EDL_HOME": "/nowhere"},
        )  # fmt: skip
        assert f"Usage: {name} " in done.stdout
