"""Modules of a zoo are found by path, separate from installed ones; errors name the line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.model_file.resolver import find_model
from edl_worker.model_file.zoo.importer import ModelZoo
from edl_worker.model_file.zoo.module_import import import_module, open_zoo

MODEL = """
model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
"""


def open_(zoo: ZooFolder) -> ModelZoo:
    return open_zoo(str(zoo.root))


def failure(zoo: ZooFolder, model_def: str) -> EdlError:
    with pytest.raises(EdlError) as caught:
        find_model(open_(zoo), model_def)
    return caught.value


@pytest.mark.parametrize("path", ["a/b.py", "a/b/__init__.py"])
def test_a_module_or_a_package_is_found_by_its_path(zoo: ZooFolder, path: str) -> None:
    zoo.write(path, MODEL)
    found = find_model(open_(zoo), "a.b.model")
    assert (found.form, found.name, found.module.__name__) == ("instance", "model", "a.b")


def test_a_file_next_to_a_folder_of_its_name_is_its_package(zoo: ZooFolder) -> None:
    zoo.write("regressor.py", "from regressor.parts import WIDTH\nclass DNN(tf.keras.Model): pass")
    zoo.write("regressor/parts.py", "WIDTH = 7")
    zoo.write("regressor/wide_and_deep.py", "from . import DNN\nclass MagicalWAD(DNN): pass")
    opened = open_(zoo)
    wide = find_model(opened, "regressor.wide_and_deep.MagicalWAD")
    deep = find_model(opened, "regressor.DNN")
    assert wide.value.__mro__[1] is deep.value
    assert deep.module.WIDTH == 7


@pytest.mark.parametrize(
    ("statement", "used"),
    [
        ("import shared.sizes", "shared.sizes.WIDTH"),
        ("import shared.sizes as s", "s.WIDTH"),
        ("from shared import sizes", "sizes.WIDTH"),
        ("from shared.sizes import WIDTH", "WIDTH"),
        ("from shared.sizes import *", "WIDTH"),
        ("from ..shared.sizes import WIDTH", "WIDTH"),
        ("from ..shared import sizes", "sizes.WIDTH"),
        ("from .. import shared\nfrom ..shared import sizes", "shared.sizes.WIDTH"),
        ("from . import near", "near.WIDTH"),
        ("from .near import WIDTH", "WIDTH"),
        ("import importlib\nsizes = importlib.import_module('shared.sizes')", "sizes.WIDTH"),
        ("def later():\n    import shared.sizes\n    return shared.sizes", "later().WIDTH"),
    ],
)
def test_imports_within_the_zoo(zoo: ZooFolder, statement: str, used: str) -> None:
    zoo.write("shared/sizes.py", "WIDTH = 7")
    zoo.write("team/near.py", "WIDTH = 7")
    zoo.write("team/net.py", f"{statement}\nwidth = {used}")
    assert import_module(open_(zoo), "team.net").width == 7


def test_a_zoo_inside_a_package_imports_by_relative_and_by_its_own_name(zoo: ZooFolder) -> None:
    zoo.write("team/__init__.py", "OWNER = 'us'")
    zoo.write("team/sizes.py", "WIDTH = 7")
    zoo.write(
        "team/net.py",
        """
        from . import OWNER, sizes
        from .sizes import WIDTH
        from team.sizes import WIDTH as SAME
        import team.sizes
        import team
        found = (OWNER, sizes.WIDTH, WIDTH, SAME, team.sizes.WIDTH, team.OWNER)
        """,
    )
    inner = open_zoo(str(zoo.root / "team"))
    assert import_module(inner, "net").found == ("us", 7, 7, 7, 7, "us")


def test_a_relative_import_out_of_the_zoo_is_refused(zoo: ZooFolder) -> None:
    zoo.write("net.py", "from ..other import x")
    error = failure(zoo, "net")
    assert "leads out of the model zoo" in error.what
    assert error.where == f"{zoo.root}/net.py:{zoo.line('net.py', '..other')}"


@pytest.mark.parametrize("name", ["test", "keras", "queue", "recordio", "edl_worker"])
def test_an_installed_package_of_the_same_name_is_unaffected(zoo: ZooFolder, name: str) -> None:
    installed = importlib.import_module(name)
    zoo.write(f"{name}.py", MODEL + "\nfrom shared import VALUE", imports=False)
    path = zoo.root / f"{name}.py"
    path.write_text("import tensorflow as tf\n" + path.read_text())
    zoo.write("shared.py", f"import {name}\nVALUE = {name}.MARK if False else 1")
    found = find_model(open_(zoo), f"{name}.model")
    assert found.module.__file__ == str(path)
    assert sys.modules[name] is installed
    assert importlib.import_module(name) is installed


def test_code_of_the_zoo_prefers_the_zoo_s_modules(zoo: ZooFolder) -> None:
    zoo.write("test/support.py", "WHO = 'the zoo'")
    zoo.write("net.py", "from test.support import WHO\nimport test.support as s\nsame = s.WHO")
    module = import_module(open_(zoo), "net")
    assert (module.WHO, module.same) == ("the zoo", "the zoo")
    assert not hasattr(importlib.import_module("test.support"), "WHO")


def test_a_module_named_like_a_package_that_it_imports(zoo: ZooFolder) -> None:
    zoo.write("keras.py", "import keras\nversion = keras.__version__")
    assert (
        import_module(open_(zoo), "keras").version == importlib.import_module("keras").__version__
    )


def test_a_folder_without_code_hides_no_installed_package(zoo: ZooFolder) -> None:
    (zoo.root / "numpy" / "docs").mkdir(parents=True)
    zoo.write("net.py", "import numpy\npi = numpy.pi")
    assert import_module(open_(zoo), "net").pi > 3


def test_opening_a_zoo_executes_its_files_again(zoo: ZooFolder) -> None:
    zoo.write("net.py", "count = []")
    first = import_module(open_(zoo), "net")
    zoo.write("net.py", "count = [1]")
    second = import_module(open_(zoo), "net")
    assert (first.count, second.count) == ([], [1])


def test_a_missing_zoo(zoo: ZooFolder) -> None:
    with pytest.raises(EdlError) as caught:
        open_zoo(str(zoo.root / "none"))
    assert caught.value.code == ErrorCode.MODEL_NOT_FOUND
    assert str(zoo.root / "none") in caught.value.where


def test_traceback_of_a_failed_import_has_only_user_frames(zoo: ZooFolder) -> None:
    zoo.write("inner.py", "def divide():\n    return 1 / 0")
    zoo.write("net.py", "from inner import divide\ndivide()")
    error = failure(zoo, "net")
    assert error.code == ErrorCode.MODEL_IMPORT
    assert error.where == f"{zoo.root}/inner.py:{zoo.line('inner.py', '1 / 0')}, divide"
    assert "ZeroDivisionError: division by zero" in error.what
    assert "net.py" in error.detail
    assert "importlib" not in error.detail
    assert "edl_worker" not in error.detail


def test_a_syntax_error_names_its_line(zoo: ZooFolder) -> None:
    zoo.write("net.py", "x = 1\ndef (:\n")
    error = failure(zoo, "net")
    assert error.code == ErrorCode.MODEL_IMPORT
    assert error.where == f"{zoo.root}/net.py:{zoo.line('net.py', 'def (')}"


def test_a_package_that_is_not_installed(zoo: ZooFolder) -> None:
    zoo.write("net.py", "import surely_not_installed.inner")
    error = failure(zoo, "net")
    assert error.code == ErrorCode.MODEL_IMPORT
    assert "pip install surely_not_installed" in error.remedy
    assert "requirements.txt" in error.remedy


@pytest.mark.parametrize(
    ("module", "said"),
    [("tensorflow_addons", "keras.optimizers.AdamW"), ("skimage", "pip install scikit-image")],
)
def test_a_package_that_has_ended_or_another_name(zoo: ZooFolder, module: str, said: str) -> None:
    zoo.write("net.py", f"import {module}")
    assert said in failure(zoo, "net").remedy


def test_a_file_that_exits_the_interpreter_is_an_error(zoo: ZooFolder) -> None:
    zoo.write("net.py", "import sys\nsys.exit('bye')")
    assert "SystemExit: bye" in failure(zoo, "net").what


def test_nothing_is_written_into_a_zoo(zoo: ZooFolder, tmp_path: Path) -> None:
    zoo.write("net.py", MODEL)
    find_model(open_(zoo), "net")
    assert [path.name for path in tmp_path.rglob("*")] == ["net.py"]
