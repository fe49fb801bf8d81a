"""What is wrong is told on one screen, before anything is started; a test for each."""

from __future__ import annotations

import os
import socket
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import Attempt, Done, Edl, assert_told, stand_in_for_check

import recordio
import recordio.example
from edl.adapters.local.preflight_checks import check_writable
from edl_proto.errors import EdlError
from edl_proto.v1 import model_pb2

# --- the command line ----------------------------------------------------------------------


def test_an_unknown_option(attempt: Attempt) -> None:
    assert_told(attempt(num_worker="2"), 2, "--num-worker", "Did you mean --num-workers?")
    assert_told(attempt("train", "--zzz"), 2, "--zzz", "edl train --help")
    assert_told(
        attempt("train", "--model_deff", "x"), 2, "--model-deff", "Did you mean --model-def?"
    )
    assert_told(attempt("list", "--runing"), 2, "Did you mean --running?")


def test_an_option_that_another_command_or_the_model_file_has(attempt: Attempt) -> None:
    of_train = attempt("evaluate", "--model-zoo", "zoo")
    assert_told(of_train, 2, "edl evaluate has no option --model-zoo", "belongs to edl train")
    rate = attempt("train", "--learning-rate", "0.1")
    assert_told(rate, 2, "--set learning-rate=VALUE")
    assert_told(attempt("train", "--hidden-units", "8"), 2, '--params "hidden_units=VALUE"')


def test_an_option_that_fit_of_keras_takes(attempt: Attempt) -> None:
    split = attempt("train", "--validation-split", "0.2")
    assert_told(split, 2, "no option --validation-split", "edl data convert FILE --split 0.8")
    assert_told(attempt("train", "--patience", "3"), 2, "keras.callbacks.EarlyStopping(...)")


def test_an_unknown_command(attempt: Attempt) -> None:
    assert_told(attempt("trian"), 2, "there is no command trian", "Did you mean train?")


def test_an_option_without_its_value(attempt: Attempt) -> None:
    assert_told(attempt("train", "--model-zoo"), 2, "--model-zoo")


def test_a_pattern_that_the_shell_has_expanded(attempt: Attempt) -> None:
    assert_told(
        attempt("train", "--data", "a.recordio", "b.recordio"), 2, "b.recordio", "quote patterns"
    )


def test_missing_options_with_an_example(attempt: Attempt) -> None:
    done = attempt(model_def=None, output=None)
    assert_told(done, 2, "--model-def, --output", "For example: edl train")
    assert_told(
        attempt("predict"), 2, "--trained-model, --data, --output", "edl predict --trained-model"
    )


def test_a_check_names_its_own_options(attempt: Attempt) -> None:
    assert_told(
        attempt("zoo", "check"), 2, "edl zoo check needs the options --model-zoo, --model-def"
    )
    assert_told(attempt("zoo", "check", "--model-zoo", "zoo"), 2, "needs the option --model-def")


def test_a_missing_name(attempt: Attempt) -> None:
    assert_told(attempt("status"), 2, "edl status needs NAME", "For example: edl status")


def test_names_that_are_empty(attempt: Attempt) -> None:
    assert_told(attempt("zoo", "init", ""), 2, "the name of the folder is empty")


def test_an_export_to_a_scheme_alone(attempt: Attempt) -> None:
    assert_told(attempt("export", "my-job", "--output", "gs://"), 2, "--output gs://", "whole URI")


def test_an_output_form_that_is_none(attempt: Attempt) -> None:
    assert_told(attempt("list", "-o", "xml"), 2, "xml", "json")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("num_workers", "3:1"), ("num_workers", "0"), ("update", "later"),
        ("minibatch_size", "-4"), ("num_epochs", "many"), ("name", "No Good"),
        ("dashboard_port", "99999"), ("timeout", "later"), ("params", "a=b"),
        ("params", "lr=__import__('os').getpid()"),
        ("grads_to_wait", "2"), ("data", " "), ("tensorboard_dir", "s3://bucket/kept"),
        ("model_zoo", "ssh://git.company.com/models"), ("output", "s3://"),
        ("data_cache", "s3://bucket/kept"), ("data_cache_size", "20"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be(attempt: Attempt, option: str, value: str) -> None:
    assert_told(attempt(**{option: value}), 2, "--" + option.replace("_", "-"))


# --- the model -----------------------------------------------------------------------------


def test_a_zoo_that_is_not_there(attempt: Attempt, tmp_path: Path) -> None:
    assert_told(
        attempt(model_zoo=str(tmp_path / "none")), 4, "does not exist", str(tmp_path / "none")
    )
    assert_told(attempt(model_zoo=str(tmp_path / "zoo" / "mine.py")), 4, "is a file")


def test_a_model_file_that_is_not_there(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "zoo" / "mnist").mkdir()
    (tmp_path / "zoo" / "mnist" / "mnist_functional_api.py").write_text("model = 1")
    done = attempt(model_def="mnist.mnist_functional")
    assert_told(done, 4, "mnist.mnist_functional", "Did you mean mnist.mnist_functional_api?")
    assert_told(attempt(model_def="zoo/mine.py"), 4, "not a dotted name", "--model-def mine")
    assert_told(attempt(model_def="mine.py"), 4, "Leave .py out: --model-def mine")


def test_a_name_that_the_model_file_lacks(attempt: Attempt) -> None:
    assert_told(attempt(model_def="mine.modle"), 4, "mine.py has no modle", "Did you mean model?")


def test_a_function_that_the_model_file_lacks(attempt: Attempt, tmp_path: Path) -> None:
    assert_told(attempt(loss="lost"), 4, "mine.py has no lost", "--loss", "Did you mean loss?")
    (tmp_path / "zoo" / "other.py").write_text("def input_fn(records): pass")
    assert_told(attempt(input_fn="other.inputfn"), 4, "other.py has no inputfn", "other.py")
    assert_told(attempt(input_fn="other/x"), 4, "not a dotted name")
    assert_told(attempt(optimizer="Adam(lr=1e-3)"), 2, "a call", "--set learning-rate=1e-3 sets")


def test_a_model_file_that_is_no_python(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "zoo" / "mine.py").write_text("model = 1\ndef (:\n")
    assert_told(attempt(), 4, "mine.py:2", "model file cannot be imported", "def (:")


def test_a_model_file_that_is_no_text(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "zoo" / "mine.py").write_bytes(b"\xff\xfe\x00")
    assert_told(attempt(), 4, "mine.py", "UTF-8")
    (tmp_path / "zoo" / "mine.py").write_bytes("model = 1\n# Größe\n".encode("latin-1"))
    assert_told(attempt(), 4, "mine.py:2", "the byte 0xf6", "Save it as UTF-8")


def test_a_notebook(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "zoo" / "mine.py").write_text("model = 1\n%matplotlib inline\n")
    assert_told(attempt(), 4, "mine.py:2", "only notebooks understand")
    (tmp_path / "zoo" / "mine.py").rename(tmp_path / "zoo" / "mine.ipynb")
    assert_told(attempt(), 4, "mine.ipynb is a notebook", "nbconvert")


def test_a_trained_model_that_is_none(attempt: Attempt, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))

    def with_model(place: Path) -> Done:
        return attempt("evaluate", "--trained-model", str(place), *data)

    assert_told(with_model(tmp_path / "none"), 4, "does not exist", str(tmp_path / "none"))
    assert_told(with_model(tmp_path / "data"), 4, "has no trained_model.pb")
    (tmp_path / "model.keras").write_bytes(b"PK")
    assert_told(with_model(tmp_path / "model.keras"), 4, "is a file", "--init-from")
    (tmp_path / "cut").mkdir()
    content = model_pb2.TrainedModel(model_def="mine", loss="x" * 50).SerializeToString()
    (tmp_path / "cut" / "trained_model.pb").write_bytes(content[:-20])
    assert_told(with_model(tmp_path / "cut"), 4, "cannot be read")
    (tmp_path / "cut" / "model.keras").write_bytes(b"PK")
    in_folder = with_model(tmp_path / "cut" / "model.keras")
    assert_told(in_folder, 4, f"Name its folder: {tmp_path / 'cut'}\n")
    (tmp_path / "cut" / "trained_model.pb").write_bytes(b"")
    assert_told(with_model(tmp_path / "cut"), 4, "cannot be read")
    assert_told(attempt(init_from=str(tmp_path / "none")), 4, "trained model does not exist")


# --- the data ------------------------------------------------------------------------------


def test_a_pattern_that_matches_nothing(attempt: Attempt, tmp_path: Path) -> None:
    assert_told(attempt(data=str(tmp_path / "data" / "*.rio")), 3, "--data", "*.rio", "a.recordio")
    assert_told(attempt(validation_data="nothing-*"), 3, "--validation-data", "nothing-*")
    assert_told(attempt(data=f"{tmp_path}/data,gone"), 3, "gone", "error: ")


def test_files_without_a_record(attempt: Attempt, tmp_path: Path) -> None:
    with recordio.Writer(str(tmp_path / "empty.recordio")):
        pass
    assert_told(attempt(data=str(tmp_path / "empty.recordio")), 3, "empty.recordio", "record")


def test_a_file_that_cannot_be_read(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "dangling.recordio").symlink_to(tmp_path / "gone")
    assert_told(
        attempt(data=str(tmp_path / "dangling.recordio")), 3, "dangling.recordio", "unreadable"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_file_that_may_not_be_read(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "data" / "a.recordio").chmod(0)
    assert_told(attempt(), 3, "a.recordio", "ermission")


def test_a_file_of_no_known_format(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "what.bin").write_bytes(b"\0\1\2\3" * 100)
    assert_told(attempt(data=str(tmp_path / "what.bin")), 3, "what.bin", "--data-format")


def test_an_archive(attempt: Attempt, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "rows.zip", "w") as archive:
        archive.writestr("rows.csv", "a,b\n1,2\n")
    assert_told(attempt(data=str(tmp_path / "rows.zip")), 3, "rows.zip", "unpack it")


def test_a_dry_run_finds_damaged_data(attempt: Attempt, edl: Edl, tmp_path: Path) -> None:
    file = tmp_path / "data" / "long.recordio"
    with recordio.Writer(str(file), chunk_records=4) as writer:
        for number in range(40):
            writer.write(str(number).encode() * 20)
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    done = attempt(*edl.job("--dry-run"))
    assert_told(done, 3, "long.recordio", "damaged data", "chunk 9")


def test_a_dry_run_tells_what_the_trial_run_finds(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edl: Edl
) -> None:
    errors = [
        {"code": "UNKNOWN_PARAMETER", "what": "there is no units", "where": "--params",
         "remedy": "Did you mean unit?"},
        {"code": "MODEL_CONTRACT", "what": "no loss", "where": "mine.py", "remedy": "Write one."},
    ]  # fmt: skip
    monkeypatch.setenv("EDL_PYTHON", stand_in_for_check(tmp_path, errors=errors))
    done = attempt(*edl.job("--dry-run"))
    assert_told(done, 2, "there is no units (and 1 more)", "Did you mean unit?", "no loss")
    assert done.out == ""


def test_a_dry_run_tells_what_the_trained_model_will_lack(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edl: Edl
) -> None:
    monkeypatch.setenv("EDL_PYTHON", stand_in_for_check(tmp_path, warnings=["No model.keras."]))
    for command in (
        edl.job("--dry-run"),
        ("zoo", "check", "--model-zoo", "zoo", "--model-def", "mine"),
    ):
        done = attempt(*command)
        assert done.code == 0, str(done)
        assert "warning: No model.keras." in done.err


# --- the place -----------------------------------------------------------------------------


def test_a_table_with_another_delimiter(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b\n1;2\n")
    assert_told(attempt(data=str(tmp_path / "t.csv")), 3, "separated by ';'", "edl data convert")


def test_a_table_with_two_columns_of_one_name(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,a\n1,2\n")
    done = attempt(data=str(tmp_path / "t.csv"))
    assert_told(done, 3, "t.csv", "'a' twice", "a name of its own")
    assert "--data-format" not in done.err


def test_a_column_to_keep_that_is_not_there(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("ident,b\n1,2\n")
    (tmp_path / "m").mkdir()
    model = model_pb2.TrainedModel(model_def="m")
    (tmp_path / "m" / "trained_model.pb").write_bytes(model.SerializeToString())
    predict = ("predict", "--trained-model", str(tmp_path / "m"), "--output", str(tmp_path / "o"))
    for name in ("t.csv", "t.recordio"):
        with recordio.Writer(str(tmp_path / "t.recordio")) as writer:
            writer.write(recordio.example.encode({"ident": 1}))
        done = attempt(*predict, "--data", str(tmp_path / name), "--keep", "idnt")
        assert_told(done, 2, "--keep idnt", "ident", name)


def test_an_output_that_exists(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("mine")
    assert_told(attempt(), 5, str(tmp_path / "out"), "exists")
    assert (tmp_path / "out" / "precious").read_text() == "mine"


def test_an_output_below_a_file(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert_told(attempt(output=str(tmp_path / "file" / "out")), 7, "part of the path is a file")


def test_an_output_where_no_user_can_make_files(attempt: Attempt) -> None:
    done = attempt(output="/proc/x")
    assert_told(done, 7, "error: the folder cannot be written: ", "where: /proc/x (/proc)\n")
    assert "what to do: Name a folder that you may write to.\n" in done.err
    assert "disk" not in done.err


def test_an_output_on_a_disk_that_is_full(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(total=1 << 40, free=10)
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage)
    assert_told(
        attempt(), 7, "no space left", "edl-home/jobs\n", "or set EDL_HOME to a folder on another"
    )
    with pytest.raises(EdlError, match="no space left on the disk") as caught:
        check_writable(tmp_path / "out")
    assert caught.value.remedy == "Free some space, or name a folder on another disk."
    usage.total = usage.free = 0  # as a remote file system says that does not know its size
    check_writable(tmp_path / "out")


@pytest.mark.parametrize("option", ["output", "checkpoint_dir"])
def test_a_name_that_would_be_too_long_at_the_end(
    attempt: Attempt, tmp_path: Path, option: str
) -> None:
    """A model that is being written has a longer name than its output."""
    assert_told(
        attempt(**{option: str(tmp_path / ("x" * 200))}), 7, "a part of the path is too long"
    )
    assert_told(attempt(**{option: str(tmp_path / ("ä" * 80) / "out")}), 7, "too long")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_an_output_that_may_not_be_written(attempt: Attempt, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    assert_told(attempt(output=str(tmp_path / "locked" / "out")), 7, "permission denied")


def test_a_port_in_use(attempt: Attempt) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert_told(attempt(dashboard_port=port), 5, port, "--dashboard-port")


@pytest.mark.parametrize("command", ["list", "status x", "logs x", "delete x", "resume x"])
def test_a_home_that_is_a_file(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "file"))
    done = attempt(*command.split())
    assert done.code == 7, str(done)
    assert "the folder of jobs cannot be read: Not a directory" in done.err
    assert f"where: {tmp_path}/file/jobs\n" in done.err
    assert "what to do: Set EDL_HOME to a folder that you may read and write.\n" in done.err


def test_a_home_that_cannot_be_made(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDL_HOME", str(tmp_path / "file" / "home"))
    assert_told(
        attempt(), 7, "where: ", "what to do: Set EDL_HOME to a folder that you may write to.\n"
    )


# --- for programs --------------------------------------------------------------------------


def test_a_refused_job_is_an_object_too(attempt: Attempt) -> None:
    done = attempt(data="nothing-*", name="refused", output_format="json")
    assert_told(done, 3)
    assert done.json["job"] == "refused"
    assert done.json["state"] == "NOT_STARTED"
    assert done.json["error"]["code"] == "DATA_NOT_FOUND"
    assert done.json["records_trained"] == 0


def test_a_platform_that_is_none_is_an_object_too(attempt: Attempt) -> None:
    done = attempt("status", "x", "--platform", "cloud", "-o", "json")
    assert_told(done, 2, "--platform: 'cloud' is not one of", "For example: --platform kubernetes")
    assert done.json["error"]["code"] == "USAGE"


def test_a_platform_of_a_command_about_jobs_is_read_as_the_option_is(attempt: Attempt) -> None:
    assert_told(attempt("status", "absent", "--platform", "Processes"), 6, "absent")


def test_an_internal_error_is_reported_as_one(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edl.use_cases.job_submission import JobSubmitter

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(JobSubmitter, "prepare", fail)
    done = attempt()
    assert done.code == 70
    assert "ZeroDivisionError: on purpose" in done.err
    assert "where: " in done.err
    assert "in fail" in done.err
