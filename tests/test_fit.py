"""``elasticdl.fit`` and ``elasticdl.job`` in a program, as a modeler writes it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from conftest import ROOT, Edl

HELPERS = """
import keras

def distance(guess, truth):  # in another order than Keras's names say
    return keras.ops.mean(keras.ops.square(guess - truth), axis=-1) * 0.5
"""

RIDES = """
import json
import keras
import numpy as np
import elasticdl
from helpers import distance

SCALE = 2.0
keras.utils.set_random_seed(1)


class Scaled(keras.layers.Layer):
    def call(self, x):
        return x * SCALE


class Stop(keras.callbacks.Callback):
    def __init__(self, after):
        super().__init__()
        self.after = after

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 == self.after:
            self.model.stop_training = True


class Collect(keras.callbacks.Callback):
    seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(epoch)


def make_model(zones):
    words = keras.layers.StringLookup()
    words.adapt(zones)
    zone = keras.Input((), dtype="string", name="zone")
    route = keras.Input((2,), name="route")
    place = keras.layers.Embedding(words.vocabulary_size(), 3)(words(zone))
    x = keras.layers.Dense(16, activation="relu")(keras.layers.concatenate([place, route]))
    return keras.Model([zone, route], keras.layers.Dense(1)(Scaled()(x)), name="rides")


draw = np.random.default_rng(1)
zones = draw.choice(["north", "south", "west"], 1000).astype(object)
route = draw.normal(size=(1000, 2))
x = {"zone": zones, "route": route}
y = route.sum(axis=1) + 2 * (zones == "west") + draw.normal(0, 0.5, 1000)
model = make_model(zones)
model.compile(keras.optimizers.Adam(0.02), loss=distance, metrics=["mae"])
before = model.get_weights()
history = elasticdl.fit(
    model, x, y, batch_size=32, epochs=12, validation_split=0.2, num_workers=2, verbose=2,
    callbacks=[Stop(8), Collect(), keras.callbacks.LearningRateScheduler(lambda e, r: r * 0.9)],
)
trained = model.evaluate(x, y, verbose=0)
model.set_weights(before)
model.compile(keras.optimizers.Adam(0.02), loss=distance, metrics=["mae"])
expected = model.fit(
    x, y, batch_size=32, epochs=8, validation_split=0.2, verbose=0,
    callbacks=[keras.callbacks.LearningRateScheduler(lambda e, r: r * 0.9)],
)
print("RESULT", json.dumps([
    history.history, expected.history, trained, model.evaluate(x, y, verbose=0), Collect.seen
]))
"""


def run_program(edl: Edl, folder: Path, source: str) -> str:
    file = folder / "program.py"
    file.write_text(source)
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        env=edl.env,
        cwd=folder,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_model_learns_in_a_job_what_it_learns_with_fit(edl: Edl, tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text(HELPERS)
    out = run_program(edl, tmp_path, RIDES)
    (line,) = (line for line in out.splitlines() if line.startswith("RESULT "))
    job, local, trained, by_fit, seen = json.loads(line.removeprefix("RESULT "))
    assert list(job) == ["loss", "mae", "val_loss", "val_mae", "learning_rate"]
    assert sorted(job) == sorted(local)
    assert [len(values) for values in job.values()] == 5 * [8]
    for name in ("loss", "val_loss"):
        assert 0.75 < job[name][-1] / local[name][-1] < 1.3, (name, job, local)
    assert job["val_loss"][-1] < 0.2, "the noise is 0.125 of it"
    assert 0.75 < trained[0] / by_fit[0] < 1.3
    assert seen == list(range(8))
    assert "Epoch 8/12 - " in out
    (name,) = edl("list", "-o", "name").out.split()
    status = edl.status(name)
    assert status["state"] == "SUCCEEDED"
    assert status["progress"]["records_done"] == 8 * 800
    assert not list((edl.home / "fits").iterdir()), "the data of a job goes with it"


SUBCLASS = """
import keras
import numpy as np
import elasticdl


@elasticdl.job(name="subclassed")
def main():
    class Net(keras.Model):
        def __init__(self, units):
            super().__init__()
            self.units = units
            self.first = keras.layers.Dense(units, activation=lambda x: keras.ops.relu(x))
            self.last = keras.layers.Dense(3)

        def call(self, x):
            return self.last(self.first(x))

    draw = np.random.default_rng(2)
    x = draw.normal(size=(600, 4)).astype("float32")
    y = x[:, :3].argmax(axis=1)
    model = Net(12)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
    history = model.fit(x[:500], y[:500], epochs=4, validation_data=(x[500:], y[500:]), verbose=0)
    measured = model.evaluate(x[500:], y[500:], verbose=0)
    assert abs(measured[1] - history.history["val_accuracy"][-1]) < 1e-5
    assert abs(measured[0] - history.history["val_loss"][-1]) < 1e-4
    assert measured[1] > 0.7, history.history
    assert len(history.history["accuracy"]) == 4


main()
"""


def test_the_fit_of_a_function_is_a_job(edl: Edl, tmp_path: Path) -> None:
    assert run_program(edl, tmp_path, SUBCLASS) == ""
    assert edl.status("subclassed")["state"] == "SUCCEEDED"


def test_the_examples_of_the_documents_run(edl: Edl, tmp_path: Path) -> None:
    first, script, _, handle = read_examples("fit.md")
    _, migrated = read_examples("migration.md")
    out = run_program(edl, tmp_path, first + handle + script + migrated)
    assert "Epoch 10/10 - " in out
    assert "'epochs': 3" in out
    assert "[{'epoch': 1, " in out
    assert len(edl("list", "-o", "name").out.split()) == 4


def test_a_model_of_a_program_trains_with_files(edl: Edl, tmp_path: Path) -> None:
    out = run_program(edl, tmp_path, read_examples("fit.md")[2])
    assert "{'epoch': 4, 'loss': " in out
    (value,) = re.findall(r"\[\[(.*)\]\]", out)
    assert abs(float(value) - 2) < 0.3


def read_examples(page: str) -> list[str]:
    """Return the programs of a page of the documents."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
