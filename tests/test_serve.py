"""``edl serve``: requests get what a prediction job writes."""

from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Edl

ROWS = [(0.1 * number, "abc"[number % 3], number % 2) for number in range(64)]

MODEL = """
import keras
import tensorflow as tf

cities = keras.layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")


def model():
    age, city = keras.Input((1,), name="age"), keras.Input((3,), name="city")
    joined = keras.layers.Concatenate()([age, city])
    return keras.Model([age, city], keras.layers.Dense(1)(joined))


def dataset_fn(dataset, mode):
    def parse(row):
        age, city, label = tf.io.decode_csv(row, [0.0, "", 0])
        return {"age": [age / 10], "city": cities(city)[0]}, label

    return dataset.map(parse)


loss = "mse"
optimizer = "adam"
"""


def test_requests_get_what_a_prediction_job_writes(edl: Edl, tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text(MODEL)
    data, output, predictions = (tmp_path / name for name in ("d.csv", "out", "p.jsonl"))
    data.write_text("".join(f"{a},{c},{y}\n" for a, c, y in [("age", "city", "label"), *ROWS]))
    edl(*f"train --model-zoo {tmp_path} --model-def served --data {data} --output {output}".split())
    edl(*f"predict --trained-model {output} --data {data} --output {predictions}".split())
    wanted = [json.loads(line)["prediction"] for line in predictions.read_text().splitlines()]

    server = edl.start("serve", str(output), "--port", "0", "--name", "m")
    line = server.stderr.readline()
    address = re.search(r"http://\S+/", line)
    assert address, line + server.stderr.read()

    def predict(instances: list[dict[str, Any]]) -> list[list[float]]:
        body = json.dumps({"instances": instances}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{address[0]}v1/models/m:predict", body, headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["predictions"]

    wrong = {"label": 0, "city": "a", "age": "old"}
    with pytest.raises(urllib.error.HTTPError) as caught:
        predict([wrong])
    answer = json.load(caught.value)
    assert caught.value.code == 422
    assert "old" in answer["what"]
    assert "edl-serve-" not in json.dumps(answer)

    rows = [{"label": label, "city": city, "age": age} for age, city, label in ROWS]
    found = predict(rows[:1]) + predict(rows[1:])
    np.testing.assert_allclose(np.ravel(found), wanted, rtol=1e-5)
    server.send_signal(signal.SIGINT)
    assert server.wait(60) == 0
