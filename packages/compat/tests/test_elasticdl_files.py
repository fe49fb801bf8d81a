"""Files in the style of ElasticDL train as they are: one small file for each form."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from elasticdl_definitions import COLUMNS, TABLE, load_and_train
from model_files import LOSS, MODEL, REST, rows
from plain_loop import batches, evaluate
from zoo_folder import ZooFolder

from edl_worker.model_file.errors import ContractErrors
from elasticdl.python.common.constants import Mode

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
