"""A job is tracked by a real MLflow server, and what that has can be loaded by MLflow."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from conftest import Edl

from edl_testing.requirements import do_without
from tests import tracker_server

_LOADED = """
import sys
sys.path.append(sys.argv[1])
import json
import mlflow
import numpy as np
points = np.array([[0.1, 0.2], [0.9, 0.8]], "float32")
own = mlflow.keras.load_model(sys.argv[2]).predict(points, verbose=0)
plain = mlflow.pyfunc.load_model(sys.argv[2]).predict(points)
import keras
here = keras.models.load_model(sys.argv[3]).predict(points, verbose=0)
print(json.dumps([part.tolist() for part in (own, plain, here)]))
"""


@pytest.fixture(scope="module")
def environment() -> Path:
    try:
        return tracker_server.install()
    except subprocess.CalledProcessError as error:
        do_without(f"MLflow cannot be installed: {error}")


def ask(url: str, method: str, **parameters: Any) -> Any:
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{url}/api/2.0/mlflow/{method}?{query}", timeout=200) as answer:
        return json.load(answer)


def history(url: str, run: str, name: str) -> list[dict[str, Any]]:
    found = ask(url, "metrics/get-history", run_id=run, metric_key=name)["metrics"]
    return [{key: one[key] for key in ("step", "timestamp", "value")} for one in found]


def test_a_job_is_tracked_once_with_its_model(edl: Edl, tmp_path: Path, environment: Path) -> None:
    edl("zoo", "init", str(tmp_path / "zoo"))
    data, output = tmp_path / "zoo" / "data", tmp_path / "model"
    given = (
        *("train", "--model-zoo", str(tmp_path / "zoo"), "--model-def", "circle"),
        *("--data", str(data / "train.recordio"), "--name", "circle", "--num-epochs", "2"),
        *("--validation-data", str(data / "test.recordio"), "--output", str(output)),
    )
    with tracker_server.serving(environment, tmp_path) as url:
        edl.env |= {"MLFLOW_TRACKING_URI": url, "MLFLOW_EXPERIMENT_NAME": "circles"}
        done = edl(*given, "--tracker", "mlflow", "-o", "json")
        result = done.json
        assert "circle is tracked: " in done.err
        tracked = edl("track", "circle", "-o", "json").json  # again, after the end
        run_id = tracked["run"].rpartition("/")[2]
        run = ask(url, "runs/get", run_id=run_id)["run"]
        assert run["info"]["status"] == "FINISHED"
        parameters = {one["key"]: one["value"] for one in run["data"]["params"]}
        assert parameters["training.num_epochs"] == "2"
        accuracy = history(url, run_id, "accuracy")
        assert len(accuracy) == 2
        assert accuracy[-1]["value"] == pytest.approx(result["metrics"]["accuracy"])
        losses = history(url, run_id, "loss")
        steps = [one["step"] for one in losses]
        assert steps == sorted(set(steps))
        assert steps[-1] == result["steps"]
        models = run["outputs"]["model_outputs"]
        assert len(models) == 1

        uri = f"models:/{models[0]['model_id']}"
        packages = str(tracker_server.site_packages(environment))
        loaded = subprocess.run(
            [sys.executable, "-c", _LOADED, packages, uri, str(output / "model.keras")],
            env=edl.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert loaded.returncode == 0, loaded.stderr
        own, plain, here = json.loads(loaded.stdout.splitlines()[-1])
        assert own == plain == here
    gone = edl.run("track", "circle")
    assert gone.code == 11, str(gone)
    assert "edl track circle sends what is missing" in gone.err
