"""When and how the loops are compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import edl_master
from edl_master.core.parameters.arithmetic import kernel
from edl_master.core.parameters.layout import Layout, Variable
from edl_master.core.parameters.modes import Sync
from edl_master.core.parameters.optimizers import RULES, parse_optimizer

from .planes import A, ParameterPlane, push


def run(code: str, **environment: str) -> str:
    """Output of a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_and_making_a_plane_does_not_load_numba() -> None:
    assert (
        run(
            "import sys\n"
            "from edl_master.core.parameters.store import ParameterStore\n"
            "from edl_master.core.parameters.layout import Layout, Variable\n"
            "from edl_master.core.parameters.modes import Async\n"
            "from edl_master.core.parameters.optimizers import parse_optimizer\n"
            "sgd = parse_optimizer({'class_name': 'SGD', 'config': {}})\n"
            "ParameterStore(Layout([Variable('w', (1,), 'float32', True)]), sgd, Async())\n"
            "print('numba' in sys.modules)"
        )
        == "False"
    )


@pytest.mark.parametrize("name", RULES)
def test_after_warming_up_a_push_compiles_nothing(name: str) -> None:
    """Wherever its buffers come from, and in both dtypes."""
    layout = Layout(
        [
            Variable("w", (5,), "float32", True),
            Variable("moving_mean", (2,), "float32", False),
        ]
    )
    config = {"use_ema": True, "clipnorm": 1.0, "weight_decay": 0.1}
    plane = ParameterPlane(layout, parse_optimizer({"class_name": name, "config": config}), Sync(2))
    plane.warm_up()
    loops = {
        loop: kernel(loop)
        for loop in (
            *([RULES[name].kernel] if hasattr(RULES[name], "kernel") else ()),
            "moving_average",
            "accumulate",
            "sum_of_squares",
            "largest_magnitude",
        )
    }
    before = {loop: list(function.signatures) for loop, function in loops.items()}
    plane.initialize(bytes(28))
    plane.grant(A, 1)
    for minibatch in range(4):
        push(plane, A, 1, minibatch, [1, 2, 3, 4, 5], state=[1, 2])
    assert plane.version == 2
    after = {loop: list(function.signatures) for loop, function in loops.items()}
    assert after == before


def test_without_a_writable_folder_for_the_cache_the_loops_still_work(tmp_path: Path) -> None:
    """A container with a read-only root file system has none."""
    package = tmp_path / "edl_master"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(edl_master.__file__).parent, package, ignore=ignore)
    # Files where folders would have to be: this stops even root.
    (package / "core" / "parameters" / "__pycache__").touch()
    nowhere = str(tmp_path / "file" / "folder")
    (tmp_path / "file").touch()
    assert (
        run(
            "import numpy, edl_master\n"
            "from edl_master.core.parameters.arithmetic import all_finite\n"
            "print(edl_master.__path__[0], all_finite([numpy.ones(3)], None))",
            PYTHONPATH=str(tmp_path),
            PYTHONDONTWRITEBYTECODE="1",
            HOME=nowhere,
            XDG_CACHE_HOME=nowhere,
            NUMBA_CACHE_DIR=nowhere,
        )
        == f"{package} True"
    )
