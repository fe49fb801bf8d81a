"""Settings and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ZOO

from edl_proto.errors import EdlError, ErrorCode
from edl_worker import config


def test_settings_come_from_the_environment() -> None:
    environ = {"EDL_MASTER_WAIT_S": "2.5", "EDL_METRICS_PORT": "9100"}
    settings = config.from_environment("h:1", 3, environ)
    assert (settings.master, settings.worker_id) == ("h:1", 3)
    assert (settings.master_wait_s, settings.metrics_port) == (2.5, 9100)
    assert config.from_environment("h:1", 3, {}) == config.Settings("h:1", 3)


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_setting_without_sense_is_refused_by_name(text: str) -> None:
    with pytest.raises(EdlError) as caught:
        config.from_environment("h:1", 0, {"EDL_MASTER_WAIT_S": text})
    assert caught.value.code == ErrorCode.USAGE
    assert "EDL_MASTER_WAIT_S" in caught.value.what
    assert text in caught.value.what


@pytest.mark.parametrize("arguments", [[], ["--master", "h:1"], ["--worker-id", "x"], ["chek"]])
def test_a_wrong_command_line_ends_with_2(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "edl_worker", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr


@pytest.mark.parametrize(
    ("model_def", "code"), [pytest.param("points", 0, marks=pytest.mark.own_start), ("pints", 1)]
)
def test_the_check_prints_one_json_object(
    model_def: str, code: int, python: str, tmp_path: Path
) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(
        json.dumps({"type": "TRAIN", "model": {"model_zoo": str(ZOO), "model_def": model_def}})
    )
    command = [python, "-m", "edl_worker", "check", "--spec", str(spec)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    answer = json.loads(done.stdout)
    assert answer["ok"] == (code == 0)
    assert done.returncode == code, done.stderr
