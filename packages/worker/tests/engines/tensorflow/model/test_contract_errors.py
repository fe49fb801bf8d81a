"""All errors of a model file are reported before training, each with its place."""

from __future__ import annotations

import runpy
from pathlib import Path

import keras
import pytest
from contract_cases import build_errors, errors, only, write
from example_data import float_images
from plain_loop import batches
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.engines.tensorflow.model import check_model_file
from edl_worker.model_file.error_messages import message_of
from edl_worker.model_file.errors import ContractErrors
from edl_worker.model_file.frames import user_frames, user_traceback
from elasticdl.python.common.constants import Mode


def test_the_unchanged_model_file_has_no_errors(zoo: ZooFolder) -> None:
    write(zoo)
    model_file = zoo.load("mine")
    model_file.build(batches(model_file, float_images(8))[0])
    assert check_model_file(zoo.reference("mine"), sample=float_images(8)) == []


def test_all_missing_definitions_are_reported_at_once(zoo: ZooFolder) -> None:
    write(zoo, dataset_fn="", loss="", optimizer="")
    found = errors(zoo, params="typo=1")
    assert [error.code for error in found] == [ErrorCode.MODEL_CONTRACT] * 3 + [
        ErrorCode.UNKNOWN_PARAMETER
    ]
    assert [error.what.split(" no ")[-1].split("(")[0] for error in found[:3]] == [
        "dataset_fn",
        "loss",
        "optimizer",
    ]
    assert all(str(zoo.root / "mine.py") in error.where for error in found[:3])


def test_different_errors_are_reported_at_once(zoo: ZooFolder) -> None:
    write(
        zoo,
        loss="def loss(labels, predictions):\n    return tf.reduce_mean(prediction - labels)",
        optimizer="def optimizer():\n    return 0.1",
        eval_metrics_fn="def eval_metrics_fn():\n    return {'accuracy': 3}",
    )
    found = errors(zoo)
    assert [error.code for error in found] == [ErrorCode.MODEL_CONTRACT] * 3
    assert "name prediction, which is not defined" in found[0].what
    assert "Did you mean predictions?" in found[0].remedy
    assert "returned a float, not a Keras optimizer" in found[1].what
    assert "metric accuracy" in found[2].what


def test_a_prediction_needs_neither_loss_nor_optimizer(zoo: ZooFolder) -> None:
    write(zoo, loss="", optimizer="", eval_metrics_fn="")
    model_file = zoo.load("mine", purpose=Mode.PREDICTION)
    with pytest.raises(RuntimeError):
        _ = model_file.optimizer
    with pytest.raises(ContractErrors) as caught:
        zoo.load("mine", purpose=Mode.EVALUATION)
    assert "loss" in only(caught.value.errors).what


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def loss(a, b):\n    return a", "it takes no labels and no predictions"),
        ("def loss(labels):\n    return labels", "it takes no predictions"),
        ("def loss(labels, predictions, weight):\n    return 1.0", "edl has no value for weight"),
        ("def loss(labels, predictions, /):\n    return 1.0", "cannot be passed by name"),
        ("loss = 'msee'", "names 'msee', a loss that Keras does not have"),
        ("def loss():\n    return 3.0", "is a float, not a loss"),
    ],
)
def test_a_loss_that_cannot_be_called(zoo: ZooFolder, source: str, said: str) -> None:
    write(zoo, loss=source)
    error = only(errors(zoo))
    assert error.code == ErrorCode.MODEL_CONTRACT
    assert said in error.what
    if source.startswith("def"):
        assert error.where == f"{zoo.root}/mine.py:{zoo.line('mine.py', 'def loss')}, loss"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return tf.argmax(predictions, 1)", "tensor of int64, not a floating tensor"),
        ("return None", "returned None"),
        ("return tf.reduce_mean(tf.cast(labels, tf.float32))", "does not depend on the model"),
    ],
)
def test_a_loss_with_an_unusable_result(zoo: ZooFolder, body: str, said: str) -> None:
    write(zoo, loss=f"def loss(labels, predictions):\n    {body}")
    error = only(build_errors(zoo))
    assert error.code == ErrorCode.MODEL_CONTRACT
    assert said in error.what
    assert f"{zoo.root}/mine.py" in error.where


@pytest.mark.parametrize("value", ["mse", "losses.MeanSquaredError", "losses.MeanSquaredError()"])
def test_the_place_of_a_loss_of_keras_is_in_the_model_file(zoo: ZooFolder, value: str) -> None:
    written = f"tf.keras.{value}" if "." in value else f"tf.keras.losses.{value}"
    write(zoo, loss=f"loss = {written}")
    assert (
        zoo.load("mine").loss_place == f"{zoo.root}/mine.py:{zoo.line('mine.py', 'loss =')}, loss"
    )


def test_a_loss_that_raises_names_its_line(zoo: ZooFolder) -> None:
    write(
        zoo,
        loss="""
def inner(labels, predictions):
    return tf.reshape(predictions, [3, 7])

def loss(labels, predictions):
    return inner(labels, predictions)
""",
    )
    error = only(build_errors(zoo))
    assert error.code == ErrorCode.SHAPE_MISMATCH
    assert error.where == f"{zoo.root}/mine.py:{zoo.line('mine.py', '[3, 7]')}, inner"
    assert "return inner(labels, predictions)" in error.detail


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("optimizer = 3", ErrorCode.MODEL_CONTRACT, "is an int"),
        ("def optimizer():\n    pass", ErrorCode.MODEL_CONTRACT, "returned None"),
        ("def optimizer(lr):\n    pass", ErrorCode.MODEL_CONTRACT, "needs lr"),
        ("def optimizer():\n    return 1 / 0", ErrorCode.MODEL_CONTRACT, "ZeroDivisionError"),
        ("def optimizer():\n    exit('x')", ErrorCode.MODEL_CONTRACT, "raised SystemExit: x"),
        (
            "class Mine(tf.keras.optimizers.SGD): pass\noptimizer = Mine",
            ErrorCode.OPTIMIZER_UNSUPPORTED,
            "Mine, whose update rule",
        ),
        (
            "optimizer = tf.keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)",
            ErrorCode.OPTIMIZER_UNSUPPORTED,
            "gradient_accumulation_steps",
        ),
        (
            "optimizer = tf.keras.optimizers.SGD(0.1, loss_scale_factor=2.0)",
            ErrorCode.OPTIMIZER_UNSUPPORTED,
            "loss_scale_factor=2.0",
        ),
        (
            "optimizer = tf.keras.optimizers.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1))",
            ErrorCode.OPTIMIZER_UNSUPPORTED,
            "with the policy mixed_float16, compile(...) puts it around SGD",
        ),
        (
            "class Warm(tf.keras.optimizers.schedules.LearningRateSchedule):\n"
            "    def __call__(self, step): return tf.math.rsqrt(step + 1.0)\n"
            "optimizer = tf.keras.optimizers.Adam(Warm())",
            ErrorCode.OPTIMIZER_UNSUPPORTED,
            "gives Adam the learning rate Warm, which the master cannot compute",
        ),
        (
            "class CosineDecay(tf.keras.optimizers.schedules.CosineDecay): pass\n"
            "optimizer = tf.keras.optimizers.Adam(CosineDecay(0.1, 10))",
            ErrorCode.OPTIMIZER_UNSUPPORTED,
            "the learning rate CosineDecay",
        ),
        (
            "def rate(): return 0.1\noptimizer = tf.keras.optimizers.Adam(rate)",
            ErrorCode.OPTIMIZER_UNSUPPORTED,
            "the learning rate rate",
        ),
    ],
)
def test_an_unusable_optimizer(zoo: ZooFolder, source: str, code: int, said: str) -> None:
    write(zoo, optimizer=source)
    error = only(errors(zoo))
    assert error.code == code
    assert said in error.what


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_a_learning_rate_replaces_the_constant_one(zoo: ZooFolder, rate: float) -> None:
    write(zoo)
    optimizer = zoo.load("mine", learning_rate=rate).optimizer
    assert keras.optimizers.serialize(optimizer)["config"]["learning_rate"] == rate
    trained = zoo.reference("mine").override_with(zoo.reference("", learning_rate=rate))
    assert (trained.model_def, trained.learning_rate) == ("mine", rate)
    assert zoo.load("mine", learning_rate=rate, purpose=Mode.EVALUATION)


def test_no_learning_rate_replaces_a_schedule_or_several_rates(zoo: ZooFolder) -> None:
    schedule = "tf.keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)"
    write(zoo, optimizer=f"optimizer = tf.keras.optimizers.SGD({schedule})")
    error = only(errors(zoo, learning_rate=0.5))
    assert (error.code, error.where) == (ErrorCode.USAGE, "--set learning-rate=0.5")
    assert error.what == "the learning rate of SGD follows the schedule ExponentialDecay"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return tf.foo(labels, predictions)", "tf.foo, which does not exist in tensorflow"),
        ("return tf.nn.softmx(predictions)", "tf.nn.softmx"),
        ("return np.men(predictions)", "np.men"),
        ("return helper(predictions)", "name undefined_in_helper"),
        ("return (lambda x: x + missing)(predictions)", "name missing"),
        ("return sum([other for _ in labels])", "name other"),
    ],
)
def test_undefined_names_are_found_without_running_the_code(
    zoo: ZooFolder, body: str, said: str
) -> None:
    helper = "def helper(x):\n    return undefined_in_helper + x\n"
    write(zoo, loss=f"{helper}\ndef loss(labels, predictions):\n    {body}")
    error = only(errors(zoo))
    assert error.code == ErrorCode.MODEL_CONTRACT
    assert said in error.what
    assert f"{zoo.root}/mine.py:" in error.where


@pytest.mark.parametrize(
    "body",
    [
        "try:\n        return unicode(labels)\n    except NameError:\n        return predictions",
        "if hasattr(tf, 'placeholder'):\n        return tf.placeholder\n    return predictions",
        "return tf.old(labels) if tf.__version__ < '2' else predictions",
        "import math\n    return math.pi * predictions",
        "global late\n    late = predictions\n    return late",
        "return [labels for labels in (predictions,)][0]",
    ],
)
def test_names_that_are_defined_in_unusual_ways(zoo: ZooFolder, body: str) -> None:
    write(zoo, loss=f"def loss(labels, predictions):\n    {body}")
    zoo.load("mine")


def test_undefined_names_in_methods_of_a_model_are_found(zoo: ZooFolder) -> None:
    write(
        zoo,
        model="""
class Net(tf.keras.Model):
    def call(self, inputs):
        return tf.keras.layers.Flatten()(input_s)
""",
    )
    error = only(errors(zoo))
    assert error.where.endswith(", call")
    assert "Did you mean inputs?" in error.remedy


def test_a_metric_that_raises(zoo: ZooFolder) -> None:
    write(
        zoo,
        eval_metrics_fn="def eval_metrics_fn():\n"
        "    return {'m': lambda labels, predictions: tf.reshape(predictions, [7, 3])}",
    )
    error = only(build_errors(zoo))
    assert "the evaluation metrics raised" in error.what
    assert f"mine.py:{zoo.line('mine.py', '[7, 3]')}" in error.where


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def create_model(self): return None", "returned None, not a Keras model"),
        ("def create_model(self): return tf.keras.layers.Dense(1)", "returned a Dense"),
        ("def create_model(self): raise RuntimeError('no')", "RuntimeError: no"),
    ],
)
def test_a_spec_without_a_model(zoo: ZooFolder, source: str, said: str) -> None:
    zoo.write(
        "mine.py",
        f"""
class Mine(ElasticDLSpec):
    {source}
    def create_optimizer(self, lr=0.1): return tf.keras.optimizers.SGD(lr)
    def create_loss(self, outputs=None, labels=None): return tf.reduce_mean(outputs)
    def create_dataset(self, dataset, mode): return dataset
""",
    )
    assert said in only(errors(zoo)).what


def test_a_spec_without_required_methods(zoo: ZooFolder) -> None:
    zoo.write("mine.py", "class Mine(ElasticDLSpec):\n    def create_model(self): pass")
    with pytest.raises(ContractErrors) as caught:
        zoo.load("mine.Mine")
    report = str(caught.value)
    for method in ("create_optimizer", "create_loss", "create_dataset"):
        assert method in report


def test_an_error_report_fits_a_screen(zoo: ZooFolder) -> None:
    write(zoo, loss="", optimizer="", dataset_fn="", model="model = 3")
    with pytest.raises(ContractErrors) as caught:
        zoo.load("mine")
    text = str(caught.value)
    assert len(text.splitlines()) < 25
    assert "Traceback" not in text


def test_the_detail_on_the_wire_lists_all_errors(zoo: ZooFolder) -> None:
    write(zoo, loss="", optimizer="")
    with pytest.raises(ContractErrors) as caught:
        zoo.load("mine")
    received = EdlError.from_proto(caught.value.to_proto())
    assert "and 1 more" in received.what
    assert "loss(labels, predictions)" in received.detail
    assert "optimizer()" in received.detail


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "Graph execution error:\n\nDetected at node StringToNumber defined at (most recent "
            'call last):\n  File "mine.py", line 7, in parse\n  File "tf.py", line 99, in run\n'
            "StringToNumberOp could not correctly convert string: x\n"
            "\t [[{{node StringToNumber}}]] [Op:__inference_step_12]",
            "StringToNumberOp could not correctly convert string: x",
        ),
        (
            "2 root error(s) found.\n  (0) INVALID_ARGUMENT:  indices[0] = 9 is not in [0, 5)\n"
            "\t [[{{node gather}}]]\n  (1) INVALID_ARGUMENT:  indices[0] = 9 is not in [0, 5)",
            "indices[0] = 9 is not in [0, 5)",
        ),
        ("one line\n\t [[{{node x}}]]\nand more", "one line"),
        ("It was made by passing\n`*args`, too.\nnext", "It was made by passing `*args`, too."),
        ("", ""),
    ],
)
def test_the_sentence_of_a_long_error(text: str, sentence: str) -> None:
    assert message_of(ValueError(text)) == sentence


def test_the_detail_of_an_error_ends_with_its_sentence(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def f():\n    raise ValueError('first\\n' + 50 * 'noise\\n')\nf()\n")
    with pytest.raises(ValueError, match="first") as caught:
        runpy.run_path(str(file))
    detail = user_traceback(caught.value, user_frames(caught.value, tmp_path))
    assert detail.splitlines()[-2:] == [
        "    raise ValueError('first\\n' + 50 * 'noise\\n')",
        "ValueError: first",
    ]


def test_a_model_function_without_return_is_the_first_error(zoo: ZooFolder) -> None:
    model = "def build_model():\n    tf.keras.Sequential([]).compile(loss='mse', optimizer='sgd')"
    write(zoo, model=model, loss="", optimizer="")
    (error,) = errors(zoo)
    assert "build_model() returned None" in error.what
    assert error.remedy == "End it with `return model`."
    write(zoo, model=model, dataset_fn="")
    assert ["returned None" in error.what for error in errors(zoo)] == [True, False]


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        ({"loss": "loss = 'sparse_categorical_crossentrop'"}, "sparse_categorical_crossentropy"),
        ({"optimizer": "optimizer = 'adamm'"}, "adam or nadam"),
        ({"eval_metrics_fn": "metrics = ['acuracy']"}, "accuracy"),
        ({"dataset_fn": "def dataset_func(dataset, mode):\n    return dataset"}, "dataset_fn"),
        ({"loss": "def loss_fn(labels, predictions):\n    return predictions"}, "loss"),
    ],
)
def test_the_nearest_name_is_suggested(zoo: ZooFolder, part: dict[str, str], wanted: str) -> None:
    write(zoo, **part)
    (error,) = errors(zoo)
    assert f"Did you mean {wanted}?" in error.remedy


def test_a_misspelled_option_is_a_warning(zoo: ZooFolder) -> None:
    write(zoo, eval_metrics_fn="def eval_metric_fn():\n    return ['accuracy']")
    (warning,) = zoo.load("mine").warnings
    assert "eval_metric_fn is not used; did you mean eval_metrics_fn?" in warning


def test_a_name_of_another_definition_is_not_misspelled(zoo: ZooFolder) -> None:
    write(zoo, loss_weights="loss_weights = [2.0]")
    assert zoo.load("mine").warnings == ()


def test_a_layer_that_is_created_in_call(zoo: ZooFolder) -> None:
    model = (
        "class Net(tf.keras.Model):\n    def call(self, x):\n"
        "        x = tf.keras.layers.Flatten()(x)\n        return tf.keras.layers.Dense(10)(x)\n"
    )
    write(zoo, model=model)
    (error,) = build_errors(zoo)
    assert error.code == ErrorCode.MODEL_CONTRACT
    assert "Net creates a layer or variable, which would be a new one" in error.what
    assert error.where.endswith(", call")
    assert "in __init__" in error.remedy
