"""``--params`` has literals, which go to the definitions that name them as parameters."""

from __future__ import annotations

import pytest
from example_data import float_images
from model_files import LOSS, REST
from plain_loop import batches
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.model_file.errors import ContractErrors
from edl_worker.model_file.params import parse_params


def test_an_error_names_the_text_the_column_and_an_example() -> None:
    with pytest.raises(EdlError) as caught:
        parse_params("ok=1, bad=open")
    assert caught.value.code == ErrorCode.USAGE
    assert "bad is not a literal: open; write 'open'" in caught.value.what
    assert caught.value.where == '--params="ok=1, bad=open", column 11'
    assert "hidden_units=[10, 100, 20, 5]" in caught.value.remedy


NET = """
class Net(tf.keras.Model):
    def __init__(self, units=3{kwargs}):
        super().__init__({rest})
        self.dense = tf.keras.layers.Dense(units)
    def call(self, inputs):
        return self.dense(tf.reshape(inputs, [-1, 784]))

def dataset_fn(dataset, mode, scale=255.0):
    def parse(record):
        description = {{"image": tf.io.FixedLenFeature([784], tf.float32)}}
        image = tf.io.parse_single_example(record, description)["image"]
        return image / scale, tf.constant([scale])
    return dataset.map(parse)

def loss(labels, predictions, weight=1.0):
    return weight * tf.reduce_mean(predictions)

def optimizer(learning_rate=0.1):
    return tf.keras.optimizers.SGD(learning_rate)
"""


def test_each_parameter_goes_to_the_definition_that_names_it(zoo: ZooFolder) -> None:
    zoo.write("net.py", NET.format(kwargs="", rest=""))
    params = "units=5, scale=2.0, weight=10.0, learning_rate=0.25"
    model_file = zoo.load("net", params=params)
    batch = batches(model_file, float_images(4))[0]
    assert float(batch.labels[0, 0]) == 2.0
    outputs = model_file.call(batch.features, training=True)
    assert outputs.shape == (4, 5)
    assert float(model_file.compute_loss(outputs, batch.labels)) == pytest.approx(
        10 * outputs.numpy().mean(), rel=1e-5
    )
    assert float(model_file.optimizer.learning_rate.numpy()) == 0.25


def test_a_class_takes_the_parameters_of_the_class_that_it_derives_from(zoo: ZooFolder) -> None:
    base = """
class Base(keras.Model):
    def __init__(self, units=1):
        super().__init__()
        self.dense = keras.layers.Dense(units)

    def call(self, x):
        return self.dense(x)
"""
    zoo.write("mine.py", f"import keras\n{base}\nclass Mine(Base):\n    pass\n{REST}{LOSS}")
    assert zoo.load("mine.Mine", params="units=5").model.dense.units == 5


def test_kwargs_of_a_constructor_get_unclaimed_parameters(zoo: ZooFolder) -> None:
    zoo.write("net.py", NET.format(kwargs=", **kwargs", rest="name=kwargs.pop('title')"))
    model_file = zoo.load("net", params="title='mine', learning_rate=0.25")
    assert model_file.model.name == "mine"


@pytest.mark.parametrize(
    ("given_name", "hint"),
    [
        ("unit", "Did you mean units?"),
        ("lr", "Did you mean learning_rate?"),
        ("zzz", "Use one of: "),
    ],
)
@pytest.mark.parametrize("kwargs", [("", ""), (", **kwargs", "**kwargs")])
def test_a_parameter_that_nothing_takes(
    zoo: ZooFolder, given_name: str, hint: str, kwargs: tuple[str, str]
) -> None:
    zoo.write("net.py", NET.format(kwargs=kwargs[0], rest=kwargs[1]))
    with pytest.raises(ContractErrors) as caught:
        zoo.load("net", params=f"{given_name}=3")
    (error,) = caught.value.errors
    assert error.code == ErrorCode.UNKNOWN_PARAMETER
    assert f"takes the parameter {given_name}" in error.what
    assert hint in error.remedy


READY = """
model = tf.keras.Sequential([tf.keras.Input((28, 28)), tf.keras.layers.Flatten()])

def dataset_fn(dataset, mode):
    return dataset

loss = tf.keras.losses.MeanSquaredError()

def optimizer(momentum=0.0):
    return tf.keras.optimizers.SGD(0.1, momentum)

def learning_rate_scheduler(model_version):
    return 0.1
"""


@pytest.mark.parametrize("given_name", ["sample_weight", "y_true", "model_version"])
def test_what_only_edl_passes_is_no_parameter(zoo: ZooFolder, given_name: str) -> None:
    """A ready loss of Keras would ignore it in silence, and so would a learning rate's schedule."""
    zoo.write("ready.py", READY)
    with pytest.raises(ContractErrors) as caught:
        zoo.load("ready", params=f"{given_name}=1")
    (error,) = caught.value.errors
    assert error.code == ErrorCode.UNKNOWN_PARAMETER
    assert error.remedy == "Use one of: momentum (optimizer)."


def test_a_constructor_that_needs_a_parameter(zoo: ZooFolder) -> None:
    zoo.write("net.py", NET.format(kwargs=", *, depth", rest=""))
    with pytest.raises(ContractErrors) as caught:
        zoo.load("net")
    (error,) = caught.value.errors
    assert "needs depth" in error.what
    assert '--params="depth=..."' in error.remedy
