"""The copy of a model's code in the directory of its job."""

import os
from pathlib import Path

import pytest

from edl.adapters.model_code import copy_code, hash_code
from edl.core.model_code import digest
from edl_proto.errors import EdlError
from edl_proto.v1 import job_pb2


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "shared.py").write_text("SHARED = 1")
    zoo = tmp_path / "zoo"
    (zoo / "layers").mkdir(parents=True)
    (zoo / "mnist.py").write_text("import layers.dense, shared\nopen('vocabulary.txt')")
    (zoo / "layers" / "dense.py").write_text("")
    (zoo / "shared.py").symlink_to(tmp_path / "elsewhere" / "shared.py")
    (zoo / "vocabulary.txt").write_text("a b")
    (zoo / "found_by_glob.txt").write_text("c")
    (zoo / "other_model.py").write_text("")
    for name in ("train.recordio", ".env", "private.pem"):
        (zoo / name).write_text("x")
    (zoo / "table.csv").write_bytes(bytes(2_000_000))
    (zoo / "__pycache__").mkdir()
    (zoo / "__pycache__" / "mnist.pyc").write_text("x")
    return zoo


def copy(zoo: Path, job: Path) -> tuple[job_pb2.ModelCode, Path]:
    job.mkdir(exist_ok=True)
    model = job_pb2.ModelSpec(model_zoo=str(zoo), model_def="mnist")
    copy_code(model, job, job)
    return model.code, Path(model.code.copies + model.code.folder)


def test_a_copy_has_what_the_model_needs_and_what_it_may_find(zoo: Path, tmp_path: Path) -> None:
    code, copied = copy(zoo, tmp_path / "job")
    own = {"mnist.py", "layers/dense.py", "shared.py", "vocabulary.txt"}
    assert set(code.files) == own
    found = {str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file()}
    assert found == own | {"found_by_glob.txt", "other_model.py"}
    assert all((copied / path).read_bytes() == (zoo / path).read_bytes() for path in found)
    assert not (copied / "shared.py").is_symlink(), "what it links to may change"
    assert code.folder == str(zoo)
    assert code.copies.startswith(f"{tmp_path}/job/code/")


def test_the_hash_is_of_names_and_contents(zoo: Path, tmp_path: Path) -> None:
    first, _ = copy(zoo, tmp_path / "job")
    os.utime(zoo / "mnist.py", (1, 1))
    (zoo / "other_model.py").write_text("another")
    second, _ = copy(zoo, tmp_path / "job")
    assert (first.sha256, first.files) == (second.sha256, second.files)
    assert first.copies != second.copies, "neither is ever half of each"
    assert first.sha256 == digest(hash_code(zoo, ["mnist"]))
    (zoo / "vocabulary.txt").write_text("b a")
    assert digest(hash_code(zoo, ["mnist"])) != first.sha256


def test_a_file_that_cannot_be_read_is_named(zoo: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda path: (_ for _ in ()).throw(OSError(5, "no")))
        with pytest.raises(EdlError, match="the model zoo cannot be read: no"):
            copy(zoo, tmp_path / "job")
