"""The Python API of the documents, as a program would use it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from conftest import ROOT, Edl, read_all

PROGRAM = """
import json, sys
import elasticdl

data, zoo, place = sys.argv[1:]
trained = elasticdl.train(
    model_zoo=zoo,
    model_def="mnist.mnist_functional_api",
    params="",
    data=data + "/train/*.recordio",
    output=place + "/my_trained_model")
predicted = elasticdl.predict(
    data=data + "/test/*.recordio",
    trained_model=place + "/my_trained_model",
    output=place + "/predicted/")
assert "tensorflow" not in sys.modules
print(json.dumps([trained.state, trained["records_trained"], predicted["predictions"]]))
try:
    elasticdl.train(model_zoo=zoo, model_def="mnist.mnist_functional_api",
                    data=data + "/nothing/*", output=place + "/other")
except elasticdl.EdlError as error:
    print(error)
"""


def test_train_and_predict_from_a_program(edl: Edl, tmp_path: Path, digit_data: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(digit_data), str(ROOT / "model_zoo"), str(tmp_path)],
        capture_output=True,
        text=True,
        env=edl.env,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *error = done.stdout.splitlines()
    assert json.loads(first) == ["SUCCEEDED", 320, 80]
    assert "DATA_NOT_FOUND" in error[0]
    assert len(read_all(tmp_path / "predicted")) == 80
