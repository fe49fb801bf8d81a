"""One module uses private parts of TensorFlow and Keras; its errors name a missing part."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import keras
import pytest
import tensorflow as tf

import edl_worker
from edl_proto.errors import ErrorCode
from edl_worker.engines.tensorflow import internals as tensorflow_internals
from edl_worker.engines.tensorflow.internals import UnsupportedVersion

SOURCES = Path(edl_worker.__file__).parent
THE_MODULE = Path(tensorflow_internals.__file__)
PRIVATE_MODULES = ("tensorflow.python", "keras.src", "keras._tf_keras")
# Names of Python itself and of the standard library.
KNOWN = {"_exit", "_getframe"}


def private_uses(path: Path) -> Iterator[str]:
    """Private modules, and private attributes of anything but the module's own objects."""
    tree = ast.parse(path.read_text())
    own = {
        name.name if isinstance(name, ast.FunctionDef | ast.ClassDef) else name.attr
        for name in ast.walk(tree)
        if isinstance(name, ast.FunctionDef | ast.ClassDef)
        or (isinstance(name, ast.Attribute) and is_self(name.value))
    }
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith(PRIVATE_MODULES):
                yield f"{path.name}:{node.lineno} imports {module}"
            case ast.Import(names=names):
                for name in names:
                    if name.name.startswith(PRIVATE_MODULES):
                        yield f"{path.name}:{node.lineno} imports {name.name}"
            case ast.Attribute(value=value, attr=name) if not is_self(value):
                if is_private(name) and name not in own | KNOWN:
                    yield f"{path.name}:{node.lineno} uses {ast.unparse(node)}"
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr" | "setattr"),
                args=[value, ast.Constant(value=str(name)), *_],
            ) if is_private(name) and not is_self(value):
                yield f"{path.name}:{node.lineno} uses {ast.unparse(node)}"
            case _:
                pass


def is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def is_private(name: str) -> bool:
    return (name.startswith("_") and not name.endswith("__")) or name == "__internal__"


def test_no_other_module_uses_private_parts() -> None:
    uses = {path: list(private_uses(path)) for path in SOURCES.rglob("*.py")}
    assert len(uses.pop(THE_MODULE)) > 5, "the search finds what it should"
    assert [use for found in uses.values() for use in found] == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from tensorflow.python.eager import context", True),
        ("import keras.src.layers", True),
        ("model._flatten_layers()", True),
        ("getattr(layer, '_embeddings', None)", True),
        ("tf.__internal__.autograph", True),
        ("keras.layers.Dense(1)", False),
        ("self._thread.start()", False),
        ("type(error).__name__", False),
    ],
)
def test_the_search_knows_private_parts(tmp_path: Path, source: str, found: bool) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert bool(list(private_uses(path))) == found


def test_a_missing_part_is_an_error_that_names_the_supported_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(keras.layers.Layer, "_flatten_layers")
    with pytest.raises(UnsupportedVersion) as caught:
        tensorflow_internals.nested_layers(keras.Sequential([keras.layers.Dense(1)]))
    assert caught.value.code == ErrorCode.INTERNAL
    assert f"TensorFlow {tf.__version__} with Keras {keras.__version__}" in caught.value.what
    assert "Sequential._flatten_layers" in caught.value.what
    assert "TensorFlow 2.21 with Keras 3.15" in caught.value.remedy


def test_the_named_versions_are_the_installed_ones() -> None:
    assert tf.__version__.startswith(f"{tensorflow_internals.TENSORFLOW}.")
    assert keras.__version__.startswith(f"{tensorflow_internals.KERAS}.")


def test_a_missing_module_is_such_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(tensorflow_internals.importlib, "import_module", fail)
    with pytest.raises(UnsupportedVersion, match=r"tensorflow\.python\.eager\.context"):
        tensorflow_internals.seed_operations(1)
