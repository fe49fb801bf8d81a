"""Model files of ElasticDL that were written for another Keras, or import by old names."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl_definitions import BINARY_LOSS, IDS, PARSE_IDS, load_and_train
from google.protobuf.json_format import MessageToJson
from model_files import LOSS, MODEL, REST, rows
from plain_loop import batches, evaluate
from worker_conftest import ZOO
from zoo_folder import ZooFolder

from edl_proto.v1 import job_pb2
from edl_worker.model_file.errors import ContractErrors
from edl_worker.model_file.zoo.compatibility import CompatibilityWarning
from elasticdl.python.common.constants import Mode

# Models.

TWO_OUTPUTS = """
import tensorflow.keras.backend as K
from tensorflow.keras.layers import Dense, Layer, Multiply, Subtract
from elasticdl.python.elasticdl.layers.embedding import Embedding

class ApplyMask(Layer):
    def __init__(self, **kwargs):
        self.supports_masking = True
        super(ApplyMask, self).__init__(**kwargs)
    def compute_mask(self, input, input_mask=None):
        return None
    def call(self, x, mask=None):
        return Multiply()([x, tf.cast(K.expand_dims(mask, -1), tf.float32)])
    def compute_output_shape(self, input_shape):
        return input_shape

def custom_model():
    inputs = tf.keras.Input(shape=(3,))
    rows = ApplyMask()(Embedding(output_dim=4, mask_zero=True, input_length=3)(inputs))
    total = K.sum(rows, axis=1)
    product = K.sum(0.5 * Subtract()([K.square(total), K.sum(K.square(rows), axis=1)]), axis=1)
    logits = tf.reshape(Dense(1)(tf.concat([total, tf.expand_dims(product, 1)], 1)), (-1,))
    probs = tf.reshape(tf.sigmoid(logits), shape=(-1, 1))
    return tf.keras.Model(inputs=inputs, outputs={"logits": logits, "probs": probs})

def eval_metrics_fn():
    return {
        "logits": {"accuracy": lambda labels, predictions: tf.equal(
            tf.cast(tf.reshape(predictions, [-1]) > 0.0, tf.int32), tf.reshape(labels, [-1]))},
        "probs": {"auc": tf.keras.metrics.AUC()},
    }
"""


def test_operations_on_keras_tensors_and_metrics_by_output(zoo: ZooFolder, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model_file = load_and_train(zoo, TWO_OUTPUTS + PARSE_IDS + BINARY_LOSS, IDS)
    warned = {w.lineno for w in caught if "do not take Keras tensors" in str(w.message)}
    assert zoo.line("mine.py", "total = K.sum") in warned
    (batch,) = batches(model_file, IDS, mode=Mode.EVALUATION, size=24)
    outputs = model_file.call(batch.features, training=False)
    labels = np.asarray(batch.labels).reshape(-1)
    auc = keras.metrics.AUC()
    auc.update_state(labels, outputs["probs"])
    accuracy = np.mean((np.asarray(outputs["logits"]) > 0) == labels)
    found = evaluate(model_file, IDS, size=7)
    assert found["logits_accuracy"] == pytest.approx(accuracy)
    assert found["probs_auc"] == pytest.approx(float(auc.result()))
    # The layers that edl makes of the operations are saved with the model.
    file = tmp_path / "model.keras"
    model_file.model.save(file)
    module = type(model_file.model.layers[2]).__module__
    restored = keras.models.load_model(
        file, custom_objects={"ApplyMask": type(model_file.model.layers[2])}
    )
    assert module.startswith("mine")
    features = np.array([[1.0, 0.0, 2.0]])
    np.testing.assert_allclose(
        restored(features)["probs"], model_file.model(features)["probs"], rtol=1e-6
    )


def test_keras_tensors_are_refused_outside_of_model_files() -> None:
    with pytest.raises(ValueError, match="KerasTensor"):
        tf.reduce_sum(keras.Input((3,)))


OLD_KERAS = """
from tensorflow.python.keras import backend, layers, regularizers
from tensorflow.python.keras.layers.normalization import BatchNormalization
from tensorflow.python.keras.metrics import accuracy

class CustomModel(tf.keras.Model):
    def __init__(self):
        super(CustomModel, self).__init__(name="old")
        assert backend.image_data_format() == "channels_last"
        self._lambda = layers.Lambda(lambda x: backend.mean(x, [1]), name="reduce_mean")
        self._norm = layers.BatchNormalization(name="norm")
        self._dense = layers.Dense(1, kernel_regularizer=regularizers.l2(1e-4))
        assert BatchNormalization is layers.BatchNormalization
    def call(self, inputs, training=True):
        x = layers.add([inputs["x"], inputs["x"]])
        x = backend.cast(self._dense(self._norm(x, training=training)), "float32")
        return backend.expand_dims(self._lambda(x))

def eval_metrics_fn():
    return {"accuracy": lambda labels, predictions: accuracy(
        tf.cast(predictions > 0, tf.int32), tf.cast(labels > 0, tf.int32))}
"""


def test_the_keras_of_tensorflow_python_is_served_by_keras_3_with_a_warning(
    zoo: ZooFolder,
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model_file = load_and_train(zoo, OLD_KERAS + REST + LOSS, rows(16))
    assert 0 <= evaluate(model_file, rows(16))["accuracy"] <= 1
    kept = [str(w.message) for w in caught if w.category is CompatibilityWarning]
    assert any("Write tf.keras.layers instead" in text for text in kept)
    assert all(isinstance(layer, keras.layers.Layer) for layer in model_file.model.layers)


def test_an_old_name_that_keras_3_lacks_is_an_import_error(zoo: ZooFolder) -> None:
    zoo.write("mine.py", "from tensorflow.python.keras.layers import CuDNNGRUv1\n" + MODEL)
    with pytest.raises(ContractErrors, match="CuDNNGRUv1"):
        zoo.load("mine")


# Names of ElasticDL.

NAMES = """
from elasticdl.layers import Embedding
from elasticdl.python.common.constants import MaxComputeConfig, Mode, ODPSConfig
from elasticdl.python.common.log_utils import default_logger as logger
from elasticdl.python.data.odps_io import ODPSWriter, is_odps_configured
from elasticdl.python.data.reader.data_reader import AbstractDataReader
from elasticdl.python.elasticdl.callbacks import LearningRateScheduler
from elasticdl.python.elasticdl.feature_column import feature_column
from elasticdl.python.elasticdl.feature_column.feature_column import embedding_column
from elasticdl.python.elasticdl.layers.embedding import Embedding
from elasticdl.python.worker.prediction_outputs_processor import BasePredictionOutputsProcessor
from elasticdl_preprocessing.feature_column import feature_column as edl_fc
from elasticdl_preprocessing.layers import Hashing
from elasticdl_preprocessing.layers.discretization import Discretization
from elasticdl_preprocessing.utils.analyzer_utils import get_max
import elasticdl_preprocessing.layers as preprocessing

assert preprocessing.Hashing is Hashing
assert feature_column.embedding_column is embedding_column
assert not is_odps_configured()
assert MaxComputeConfig.ACCESS_ID != ODPSConfig.ACCESS_ID
assert get_max("age", 90.0) == 90.0
"""


def test_imports_may_start_with_model_zoo_whatever_the_folder_is_called(zoo: ZooFolder) -> None:
    assert zoo.root.name != "model_zoo"
    zoo.write("digits/parser.py", "RATE = 0.5\n")
    imports = "from model_zoo.digits.parser import RATE\nimport model_zoo.digits.parser as p\n"
    zoo.write("digits/mine.py", imports + "assert p.RATE == RATE\n" + MODEL + REST + LOSS)
    assert zoo.load("digits.mine").form == "instance"


def test_the_modules_of_elasticdl_have_their_names(zoo: ZooFolder) -> None:
    zoo.write("mine.py", NAMES + MODEL + REST + LOSS)
    assert zoo.load("mine").form == "instance"


LOADED = """
import json, sys
from edl_worker.__main__ import main

def served():
    return sorted(name for name in sys.modules if name.startswith("edl_compat"))

assert main(["check", "--spec", sys.argv[1]]) == 0
modern = served()
assert main(["check", "--spec", sys.argv[2]]) == 0
print(json.dumps([modern, served()]))
"""
POINTS_OF_ELASTICDL = """
from points import *
from elasticdl.python.elasticdl.callbacks import LearningRateScheduler

def callbacks():
    return [LearningRateScheduler(lambda model_version: 0.1)]
"""


def test_the_check_of_a_modern_file_loads_nothing_of_it(
    zoo: ZooFolder, job: job_pb2.JobSpec, tmp_path: Path
) -> None:
    """A whole check: the contract, and a trial with the first records."""
    zoo.write("points.py", (ZOO / "points.py").read_text())
    zoo.write("mine.py", POINTS_OF_ELASTICDL)
    specs = []
    for model_def in ("points", "mine"):
        job.model.model_zoo, job.model.model_def = str(zoo.root), model_def
        specs.append(tmp_path / f"{model_def}.json")
        specs[-1].write_text(MessageToJson(job))
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *specs], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    modern, old = json.loads(done.stdout.splitlines()[-1])
    package = "edl_compat"
    shelf = [f"{package}.{name}" for name in ("old_modules", "removed_names", "shelf")]
    assert modern == [package, *shelf], "only what looks up names"
    assert {f"{package}.callbacks", f"{package}.version_schedule"} <= set(old)
