"""Files in the style of ElasticDL train as they are: one small file for each form."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from example_data import example
from model_files import LOSS, MODEL, REST, rows
from plain_loop import batches, evaluate, train
from zoo_folder import ZooFolder

import edl_worker
from edl_worker.model_file import ContractErrors, ModelFile
from edl_worker.model_file.zoo.compatibility import CompatibilityWarning
from elasticdl.python.common.constants import Mode

TABLE = [f"{a},{a + 1},{int(a > 4)}".encode() for a in range(8)]
COLUMNS = ("first", "second", "label")
IDS = [
    example(ids=np.array([i % 5, 0, 7 * i]), label=np.array([i % 2], np.int64)) for i in range(24)
]
PARSE_IDS = """
def feed(dataset, mode, _):
    def parse(record):
        r = tf.io.parse_single_example(record, {
            "ids": tf.io.FixedLenFeature([3], tf.int64),
            "label": tf.io.FixedLenFeature([1], tf.int64)})
        return {"ids": r["ids"]}, tf.cast(r["label"], tf.int32)
    return dataset.map(parse)

def optimizer(lr=0.1):
    return tf.optimizers.SGD(lr)
"""
BINARY_LOSS = """
def loss(labels, predictions):
    logits = tf.reshape(predictions["logits"], [-1])
    labels = tf.cast(tf.reshape(labels, [-1]), tf.float32)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
"""


def load_and_train(
    zoo: ZooFolder, source: str, records: Sequence[bytes], **more: object
) -> ModelFile:
    """The model file, after one epoch whose losses are finite."""
    zoo.write("mine.py", source)
    model_file = zoo.load("mine")
    losses = train(model_file, records, size=4, **more)
    assert losses
    assert np.isfinite(losses).all()
    return model_file


# Rows of a table.

FEED_OF_FIELDS = """
def custom_model():
    inputs = tf.keras.layers.Input(shape=(2, 1), name="input")
    flat = tf.keras.layers.Flatten()(inputs)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1, kernel_initializer="ones")(flat))

def feed(dataset, mode, metadata):
    label = metadata.column_names.index("label")
    def parse(record):
        return tf.strings.to_number(record[0:label]), tf.strings.to_number(record[label])
    return dataset.map(parse)

def optimizer(lr=0.0001):
    return tf.optimizers.SGD(lr)

def loss(labels, predictions):
    return tf.square(tf.reshape(predictions, [-1]) - labels)
"""
FEED_OF_NUMBERS = FEED_OF_FIELDS.replace(
    "tf.strings.to_number(record[0:label]), tf.strings.to_number(record[label])",
    "tf.reshape(record[:label], (2, 1)), tf.reshape(record[label], ())",
)


@pytest.mark.parametrize("source", [FEED_OF_FIELDS, FEED_OF_NUMBERS])
def test_a_feed_takes_rows_as_fields_or_as_numbers(zoo: ZooFolder, source: str) -> None:
    model_file = load_and_train(zoo, source, TABLE, columns=COLUMNS)
    (batch,) = batches(model_file, TABLE[:4], size=4, columns=COLUMNS)
    features = np.asarray(batch.features).reshape(4, 2)
    assert features.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert batch.labels.dtype == tf.float32


def test_the_error_of_a_feed_that_takes_no_form_of_rows_is_the_first_one(zoo: ZooFolder) -> None:
    zoo.write("mine.py", FEED_OF_FIELDS.replace('index("label")', 'index("absent")'))
    with pytest.raises(Exception, match=r"tuple\.index"):
        batches(zoo.load("mine"), TABLE, columns=COLUMNS)


# Records.

PARSING_INPUT_FN = """
def input_fn(records):
    description = {"x": tf.io.FixedLenFeature([2], tf.float32),
                   "y": tf.io.FixedLenFeature([1], tf.float32)}
    parsed = [tf.io.parse_single_example(r, description) for r in records]
    labels = np.array([r["y"].numpy() for r in parsed])
    return {"x": np.array([r["x"].numpy() for r in parsed])}, (labels > 0).astype(np.int32)

def optimizer():
    return tf.train.GradientDescentOptimizer(0.1)

def loss(output, labels):
    return tf.square(tf.reshape(output, [-1]) - tf.cast(labels.flatten(), tf.float32))

def eval_metrics_fn(predictions, labels):
    both = tf.concat([-predictions, predictions], 1)
    return {"accuracy": tf.reduce_mean(tf.cast(
        tf.equal(tf.argmax(input=both, axis=1), labels.flatten()), tf.float32))}
"""


def test_an_input_fn_that_parses_gets_serialized_records(zoo: ZooFolder) -> None:
    model_file = load_and_train(zoo, MODEL + PARSING_INPUT_FN, rows(20))
    assert model_file.form == "instance"
    # tf.argmax has 64 bits and the labels have 32, which numpy compares and TensorFlow does not.
    (batch,) = batches(model_file, rows(20), size=20)
    outputs = model_file.call(batch.features, training=False)
    right = (np.asarray(outputs) > 0) == np.asarray(batch.labels)
    assert evaluate(model_file, rows(20), size=7)["accuracy"] == pytest.approx(np.mean(right))


def test_an_input_fn_that_fails_for_both_forms_reports_the_error_of_the_usual_one(
    zoo: ZooFolder,
) -> None:
    source = PARSING_INPUT_FN.replace(
        "    parsed =", '    records[0]["no_such_feature"]\n    parsed ='
    )
    zoo.write("mine.py", MODEL + source)
    with pytest.raises(Exception, match="the record has no feature 'no_such_feature'"):
        batches(zoo.load("mine"), rows(4))


OWN_READER = """
from elasticdl.python.data.reader import AbstractDataReader, Metadata

class Reader(AbstractDataReader):
    def __init__(self, data_origin, **kwargs):
        super().__init__(**kwargs)
        self.origin = data_origin
    def read_records(self, task):
        assert task.shard_name == self.origin
        for i in range(task.start, task.end):
            yield [str(i), str(2 * i)]
    def create_shards(self):
        return {self.origin: (0, 10)}

def custom_data_reader(data_origin, records_per_task=None, **kwargs):
    return Reader(data_origin, **kwargs)
"""


def test_a_custom_data_reader_reads_the_records_of_a_task(zoo: ZooFolder) -> None:
    zoo.write("mine.py", MODEL + REST + LOSS + OWN_READER)
    model_file = zoo.load("mine")
    assert model_file.reads_records
    read = model_file.blocks("a/file", 3, 6, lambda: iter([[b"edl's"]]))
    assert [record for block in read() for record in block] == [b"3,6", b"4,8", b"5,10"]


def test_a_custom_data_reader_must_yield_what_it_is_asked_for(zoo: ZooFolder) -> None:
    zoo.write("mine.py", MODEL + REST + LOSS + OWN_READER.replace("task.end)", "min(task.end, 5))"))
    read = zoo.load("mine").blocks("a/file", 3, 6, lambda: iter([]))
    with pytest.raises(Exception, match=r"yielded 2 records of a/file instead of \[3, 6\)"):
        list(read())


# Learning rates.

SCHEDULE = """
from elasticdl.python.elasticdl.callbacks import LearningRateScheduler

def callbacks():
    def _schedule(model_version):
        if model_version < 3:
            return 0.5
        elif model_version < 15000:
            return 0.25
        return 0.125
    return [LearningRateScheduler(_schedule)]
"""


def test_a_learning_rate_scheduler_goes_by_the_version_of_the_model(zoo: ZooFolder) -> None:
    model_file = load_and_train(zoo, MODEL + REST + LOSS + SCHEDULE, rows(8))
    config = keras.optimizers.serialize(model_file.optimizer)["config"]["learning_rate"]
    assert config["class_name"] == "PiecewiseConstantDecay"
    schedule = keras.optimizers.schedules.deserialize(config)
    rates = {version: float(schedule(version)) for version in (0, 2, 3, 14999, 15000, 10**7)}
    assert rates == {0: 0.5, 2: 0.5, 3: 0.25, 14999: 0.25, 15000: 0.125, 10**7: 0.125}


@pytest.mark.parametrize(
    ("source", "rate"),
    [
        ("def learning_rate_scheduler(model_version):\n    return 0.75", 0.75),
        (SCHEDULE.replace("return [LearningRateScheduler(_schedule)]", "pass"), 0.1),
    ],
)
def test_other_ways_to_write_a_schedule(zoo: ZooFolder, source: str, rate: float) -> None:
    zoo.write("mine.py", MODEL + REST + LOSS + source)
    assert float(zoo.load("mine").optimizer.learning_rate) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def learning_rate_scheduler(v):\n    return 1 / (1 + v)", "more than 256 steps"),
        (
            "def learning_rate_scheduler(v):\n    return None",
            "returned None for version 0, not a number",
        ),
        ("def learning_rate_scheduler(v):\n    raise KeyError(v)", "it 0"),
        (
            "from elasticdl.python.elasticdl.callbacks import MaxStepsStopping\n"
            "def callbacks():\n    return [MaxStepsStopping(max_steps=10)]",
            "has a MaxStepsStopping",
        ),
    ],
)
def test_schedules_that_the_master_cannot_follow_are_refused(
    zoo: ZooFolder, source: str, error: str
) -> None:
    zoo.write("mine.py", MODEL + REST + LOSS + source)
    with pytest.raises(ContractErrors, match=error):
        zoo.load("mine")


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


# TensorFlow still contains parts of Keras 2, on which tf_keras is built.
KERAS_2 = """
import importlib

def old(module):
    return importlib.import_module("tensorflow.python.keras." + module)

def custom_model():
    inputs = old("engine.input_layer").Input((2,), name="x")
    hidden = old("layers.core").Dense(3, kernel_regularizer="l2")(inputs)
    outputs = old("layers.core").Dense(1)(old("layers.core").Dropout(0.1)(hidden))
    return old("models").Model(inputs, outputs, name="old")

def optimizer(lr=0.1):
    return old("optimizer_v2.gradient_descent").SGD(lr, momentum=0.5)

def eval_metrics_fn():
    return {"mae": old("metrics").MeanAbsoluteError(), "mse": old("metrics").MeanSquaredError}
"""


def test_models_of_keras_2_are_accepted(zoo: ZooFolder) -> None:
    model_file = load_and_train(zoo, REST + LOSS + KERAS_2, rows(16))
    assert isinstance(model_file.optimizer, keras.optimizers.SGD)
    assert model_file.optimizer.momentum == 0.5
    names = [w.name for w in model_file.model.trainable_variables]
    assert names == ["0_kernel", "1_bias", "2_kernel", "3_bias"]
    # Training and evaluation use the same variables as the wrapped model.
    (layer,) = [each for each in model_file.model.layers if hasattr(each, "wrapped")]
    (batch,) = batches(model_file, rows(16), mode=Mode.EVALUATION)
    expected = layer.wrapped(batch.features["x"])
    np.testing.assert_allclose(model_file.call(batch.features, training=False), expected)
    error = np.asarray(expected) - np.asarray(batch.labels)
    found = evaluate(model_file, rows(16), size=5)
    assert found["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-5)
    assert found["mse"] == pytest.approx((error**2).mean(), rel=1e-5)
    assert len(model_file.model.losses) == 1
    again = zoo.load("mine")
    assert [w.path for w in again.model.variables] == [w.path for w in model_file.model.variables]


def test_a_model_of_keras_2_without_inputs_is_refused(zoo: ZooFolder) -> None:
    source = """
def custom_model():
    return old("models").Sequential([old("layers.core").Dense(1)])
"""
    zoo.write("mine.py", REST + LOSS + KERAS_2.replace("def custom_model", "def other") + source)
    with pytest.raises(ContractErrors, match="Sequential, a model of Keras 2 without inputs"):
        zoo.load("mine")


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


def imports_at_load(path: Path) -> Iterator[str]:
    """The modules that a module imports when it is imported, not later in a function."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def test_nothing_of_it_is_loaded_before_a_file_asks_for_it() -> None:
    package = "edl_worker.model_file.legacy"
    sources = Path(edl_worker.__file__).parent
    imported = {
        name
        for path in sources.rglob("*.py")
        if path.parent.name != "legacy"
        for name in imports_at_load(path)
        if name.startswith(package)
    }
    assert imported == {f"{package}.old_modules"}, "only the finder"


def test_writing_to_maxcompute_is_refused_with_what_to_do(zoo: ZooFolder) -> None:
    source = 'from elasticdl.python.data.odps_io import ODPSWriter\nODPSWriter("a", columns=[])\n'
    zoo.write("mine.py", source + MODEL + REST + LOSS)
    with pytest.raises(ContractErrors, match="writes MaxCompute tables, which edl does not do"):
        zoo.load("mine")


PROCESSOR = """
from elasticdl.python.worker.prediction_outputs_processor import BasePredictionOutputsProcessor

class PredictionOutputsProcessor(BasePredictionOutputsProcessor):
    seen = []
    def process(self, predictions, worker_id):
        self.seen.append((predictions.numpy().shape, worker_id))
"""


def test_a_prediction_outputs_processor_gets_the_predictions(zoo: ZooFolder) -> None:
    zoo.write("mine.py", MODEL + REST + PROCESSOR)
    model_file = zoo.load("mine", purpose=Mode.PREDICTION)
    model_file.process_outputs(tf.zeros((5, 1)), 3)
    model_file.process_outputs(tf.zeros((2, 1)), 3)
    processor = __import__("mine").PredictionOutputsProcessor
    assert processor.seen == [((5, 1), 3), ((2, 1), 3)]


def test_a_processor_without_a_method_process_is_an_error_of_a_prediction_only(
    zoo: ZooFolder,
) -> None:
    source = "class PredictionOutputsProcessor:\n    pass\n"
    zoo.write("mine.py", MODEL + REST + LOSS + source)
    zoo.load("mine", purpose=Mode.TRAINING)
    with pytest.raises(ContractErrors, match="has no method process"):
        zoo.load("mine", purpose=Mode.PREDICTION)


def test_an_error_of_a_processor_names_its_line(zoo: ZooFolder) -> None:
    zoo.write("mine.py", MODEL + REST + PROCESSOR.replace("self.seen.append", "self.absent.append"))
    model_file = zoo.load("mine", purpose=Mode.PREDICTION)
    with pytest.raises(Exception, match="process raised AttributeError") as caught:
        model_file.process_outputs(tf.zeros((5, 1)), 3)
    assert f"mine.py:{zoo.line('mine.py', 'self.absent')}" in str(caught.value)
