"""The import of TensorFlow: what it leaves out, and that it leaves everything else as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edl_worker.engines.tensorflow import startup

SCRIPT = """
import gc, sys
from edl_worker.engines.tensorflow.startup import import_tensorflow
import_tensorflow()
assert "keras" in sys.modules and "tensorflow" in sys.modules
assert gc.isenabled()
assert gc.get_freeze_count() > 100_000
assert imported == [], imported
import sklearn
assert imported == ["sklearn"], "a model file may use it"
"""

SKLEARN = """
import builtins
builtins.imported.append("sklearn")
"""


def test_keras_does_not_import_scikit_learn_and_a_model_file_can(tmp_path: Path) -> None:
    (tmp_path / "sklearn.py").write_text(SKLEARN)
    script = "import builtins\nimported = builtins.imported = []\n" + SCRIPT
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_keras_computes_with_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")  # of the user's shell
    startup._quiet_tensorflow()
    assert os.environ["KERAS_BACKEND"] == "tensorflow"


def test_a_process_takes_only_the_memory_of_a_gpu_that_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    startup._quiet_tensorflow()
    assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    startup._quiet_tensorflow()
    assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "false", "the user's word counts"
