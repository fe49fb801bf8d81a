"""Files of Keras that others have made give values, and nothing else: ``--init-from``.

edl takes the values of such a file and never its architecture, so that nothing in the latter runs.
What HDF5 can refer to is refused by Keras; its older versions followed it (CVE-2026-1669).
"""

from __future__ import annotations

import base64
import io
import json
import marshal
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.engines.tensorflow.warm_start import initialize

SHAPE = (10, 10)
SECRET = b"A" * 400
KERNEL = {"weights.h5": "layers/dense/vars/0", "h5": "model_weights/dense/dense/kernel"}


def small_model() -> keras.Model:
    point = keras.Input(SHAPE[:1])
    return keras.Model(point, keras.layers.Dense(SHAPE[1], use_bias=False, name="dense")(point))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model in all forms of Keras, and what hostile ones refer to."""
    model = small_model()
    model.save(tmp_path / "good.keras")
    model.save_weights(tmp_path / "good.weights.h5")
    model.save(tmp_path / "good.h5")
    (tmp_path / "secret").write_bytes(SECRET)
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = np.full(SHAPE, 7, np.float32)
    return tmp_path


def external(file: Any, name: str, folder: Path) -> None:
    outside = [(str(folder / "secret"), 0, len(SECRET))]
    file.create_dataset(name, SHAPE, dtype="f4", external=outside)


def link(file: Any, name: str, folder: Path) -> None:
    file[name] = h5py.ExternalLink(str(folder / "other.h5"), "x")


def virtual(file: Any, name: str, folder: Path) -> None:
    layout = h5py.VirtualLayout(SHAPE, "f4")
    layout[...] = h5py.VirtualSource(str(folder / "other.h5"), "x", SHAPE)
    file.create_virtual_dataset(name, layout)


def huge(file: Any, name: str, folder: Path) -> None:
    file.create_dataset(name, (1 << 20, 1 << 20), dtype="f4", chunks=(1024, 1024))


def wide(file: Any, name: str, folder: Path) -> None:
    file.create_dataset(name, SHAPE, dtype=np.dtype((np.void, 1 << 28)), chunks=(1, 1))


def texts(file: Any, name: str, folder: Path) -> None:
    file.create_dataset(name, SHAPE, dtype=h5py.special_dtype(vlen=str))


@pytest.mark.parametrize("tamper", [external, link, virtual, huge, wide, texts])
@pytest.mark.parametrize("form", ["weights.h5", "h5", "keras"])
def test_values_come_from_the_file_itself(
    folder: Path, tamper: Callable[[Any, str, Path], None], form: str
) -> None:
    inner = "weights.h5" if form == "keras" else form
    path = folder / f"hostile.{inner}"
    shutil.copy(folder / f"good.{inner}", path)
    with h5py.File(path, "r+") as file:
        del file[KERNEL[inner]]
        tamper(file, KERNEL[inner], folder)
    if form == "keras":
        path = archive(folder, "model.weights.h5", path.read_bytes())
    model = small_model()
    before = model.get_weights()[0]
    with pytest.raises(EdlError) as caught:
        initialize(model, str(path))
    assert caught.value.code == ErrorCode.SHAPE_MISMATCH
    assert np.array_equal(model.get_weights()[0], before)


def archive(folder: Path, member: str, content: bytes) -> Path:
    """Return the good archive with another content of one member."""
    path = folder / "hostile.keras"
    with zipfile.ZipFile(folder / "good.keras") as good, zipfile.ZipFile(path, "w") as hostile:
        for name in good.namelist():
            if name != member:
                hostile.writestr(name, good.read(name))
        hostile.writestr(member, content)
    return path


def with_lambda(config: dict[str, Any], mark: Path) -> dict[str, Any]:
    code = compile(f"open({str(mark)!r}, 'w').close()", "x", "exec")
    text = base64.b64encode(marshal.dumps(code)).decode()
    function = {"class_name": "__lambda__", "config": {"code": text, "defaults": None}}
    layer = {"module": "keras.layers", "class_name": "Lambda", "registered_name": None}
    layer |= {"config": {"name": "l", "function": function}, "inbound_nodes": []}
    config["config"]["layers"].append(layer)
    return config


def with_a_module(config: dict[str, Any], mark: Path) -> dict[str, Any]:
    return {"module": "os", "class_name": "function", "config": "system", "registered_name": "x"}


def with_a_program(config: dict[str, Any], mark: Path) -> dict[str, Any]:
    words = {"args": ["touch", str(mark)]}
    return {"module": "subprocess", "class_name": "Popen", "config": words}


class Pickled:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("change", [with_lambda, with_a_module, with_a_program])
def test_the_architecture_of_an_archive_is_never_made(
    folder: Path, change: Callable[[dict[str, Any], Path], dict[str, Any]]
) -> None:
    mark = folder / "it ran"
    with zipfile.ZipFile(folder / "good.keras") as good:
        config = json.loads(good.read("config.json"))
    initialize(
        small_model(),
        str(archive(folder, "config.json", json.dumps(change(config, mark)).encode())),
    )
    assert not mark.exists()


def test_nothing_pickled_is_loaded(folder: Path) -> None:
    mark = folder / "it ran"
    values = io.BytesIO()
    np.savez(values, **{"layers/dense/vars": np.array([Pickled(mark)], dtype=object)})
    path = archive(folder, "model.weights.h5", b"")
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("model.weights.npz", values.getvalue())
    bare = folder / "pickle.h5"
    bare.write_bytes(pickle.dumps(Pickled(mark)))
    for each in (path, bare):
        with pytest.raises(EdlError):
            initialize(small_model(), str(each))
    assert not mark.exists()
