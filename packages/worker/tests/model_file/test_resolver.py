"""``--model-def`` names a model in one of the forms, or the only model of a module."""

from __future__ import annotations

import pytest
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.model_file.errors import ContractErrors
from edl_worker.model_file.resolver import find_definition, find_model
from edl_worker.model_file.zoo.importer import ModelZoo
from edl_worker.model_file.zoo.module_import import open_zoo

MODEL = """
model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
"""


def open_(zoo: ZooFolder) -> ModelZoo:
    return open_zoo(str(zoo.root))


def failure(zoo: ZooFolder, model_def: str) -> EdlError:
    with pytest.raises(EdlError) as caught:
        find_model(open_(zoo), model_def)
    return caught.value


@pytest.mark.parametrize(
    ("model_def", "suggested"),
    [("mnist.mnist_functional", "mnist.mnist_functional_api"), ("minst.model", "mnist")],
)
def test_error_for_a_missing_module_suggests_the_nearest(
    zoo: ZooFolder, model_def: str, suggested: str
) -> None:
    zoo.write("mnist/mnist_functional_api.py", MODEL)
    error = failure(zoo, model_def)
    assert error.code == ErrorCode.MODEL_NOT_FOUND
    assert suggested in error.remedy


def test_error_for_a_missing_name_suggests_the_nearest(zoo: ZooFolder) -> None:
    zoo.write("nets.py", "class WideNet(tf.keras.Model): pass")
    error = failure(zoo, "nets.WideNett")
    assert error.code == ErrorCode.MODEL_NOT_FOUND
    assert "WideNet" in error.remedy


def test_several_models_are_listed(zoo: ZooFolder) -> None:
    zoo.write("nets.py", "class A(tf.keras.Model): pass\nclass B(tf.keras.Model): pass")
    error = failure(zoo, "nets")
    assert "A, B" in error.what
    assert "--model-def nets.A" in error.remedy


@pytest.mark.parametrize(
    ("source", "form"),
    [
        (MODEL + "class Other(tf.keras.Model): pass", "instance"),
        ("class Net(tf.keras.Model): pass", "class"),
        ("def custom_model(): pass\ndef unrelated(): pass", "function"),
        ("class Net(ElasticDLSpec):\n    create_model = create_optimizer = create_loss = "
         "create_dataset = lambda self: None", "spec"),
    ],
)  # fmt: skip
def test_the_only_model_of_a_module_is_found(zoo: ZooFolder, source: str, form: str) -> None:
    zoo.write("net.py", source)
    assert find_model(open_(zoo), "net").form == form


def test_an_imported_class_is_not_a_candidate(zoo: ZooFolder) -> None:
    zoo.write("base.py", "class Base(tf.keras.Model): pass")
    zoo.write("net.py", "from base import Base\nclass Net(Base): pass")
    assert find_model(open_(zoo), "net").name == "Net"


@pytest.mark.parametrize("value", ["3", "'model'", "tf", "tf.keras.layers.Dense"])
def test_an_object_that_is_not_a_model_is_refused(zoo: ZooFolder, value: str) -> None:
    zoo.write("net.py", f"thing = {value}")
    error = failure(zoo, "net.thing")
    assert error.code == ErrorCode.MODEL_CONTRACT
    assert "not a model" in error.what


def test_all_errors_are_reported_at_once(zoo: ZooFolder) -> None:
    with pytest.raises(ContractErrors) as caught:
        zoo.load("a.b", params="x=y")
    assert [error.code for error in caught.value.errors] == [
        ErrorCode.USAGE,
        ErrorCode.MODEL_NOT_FOUND,
    ]


def test_a_model_is_in_whichever_file_of_a_folder_has_it(zoo: ZooFolder) -> None:
    zoo.write("nets/wide.py", "class WideNet(tf.keras.Model): pass")
    zoo.write("nets/deep.py", "class DeepNet(tf.keras.Model): pass")
    assert find_model(open_(zoo), "nets.DeepNet").name == "DeepNet"
    zoo.write("nets/other.py", "class DeepNet(tf.keras.Model): pass")
    error = failure(zoo, "nets.DeepNet")
    assert "nets.deep.DeepNet, nets.other.DeepNet" in error.what
    assert error.remedy == "Name one: --model-def nets.deep.DeepNet"


def test_the_wrong_one_of_several_metrics_is_named(zoo: ZooFolder) -> None:
    zoo.write("net.py", "class Net(tf.keras.Model): pass")
    opened = open_(zoo)
    with pytest.raises(EdlError, match="--eval-metrics-fn acuracy: the model file has") as caught:
        find_definition(
            *(opened, find_model(opened, "net"), "eval_metrics_fn", "--eval-metrics-fn"),
            "mae, acuracy",
            lambda _, name: name == "mae",
            lambda _, name: f"Did you mean {name.replace('cu', 'ccu')}?",
        )
    assert caught.value.remedy == "Did you mean accuracy?"
