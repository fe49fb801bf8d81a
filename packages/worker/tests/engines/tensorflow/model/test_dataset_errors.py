"""Errors of dataset functions, records and features, each with its place."""

from __future__ import annotations

import pytest
from contract_cases import GOOD, build_errors, errors, only, write
from example_data import example, float_images
from plain_loop import batches
from zoo_folder import ZooFolder

from edl_proto.errors import EdlError, ErrorCode
from elasticdl.python.common.constants import Mode


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 3", "returned an int, not a tf.data.Dataset"),
        ("pass", "returned None"),
        ("return dataset.map(lambda r: (r, r, r, r))", "yields 4 parts per record"),
        ("return dataset.map(lambda r: {'image': r})", "yields no labels in mode TRAINING"),
        ("return dataset.map(lambda r: (r, r)).repeat()", "repeats the dataset forever"),
        (
            "return tf.data.Dataset.from_tensors((1.0, 1.0)).repeat()",
            "yields examples of its own, without reading the dataset that it gets",
        ),
        (
            "return tf.data.Dataset.from_tensors((1.0, 1.0)).repeat(9)",
            "yields examples of its own, without reading the dataset that it gets",
        ),
        (
            "return dataset.interleave(lambda r: tf.data.Dataset.from_tensors((r, r)), "
            "num_parallel_calls=2, deterministic=False)",
            "deterministic=False",
        ),
        (
            "return dataset.map(lambda r: (r, r), num_parallel_calls=2, deterministic=False)",
            "deterministic=False",
        ),
        ("return dataset.skip(1).map(lambda r: (r, r))", "calls .skip()"),
        ("return dataset.map(lambda r: (r, r)).take(100)", "calls .take()"),
        ("return dataset.shard(2, 0).map(lambda r: (r, r))", "calls .shard()"),
        ("return dataset.map(lambda r: (r, r)).cache('/tmp/x')", "caches into a file"),
    ],
)
def test_a_dataset_function_that_breaks_the_contract(zoo: ZooFolder, body: str, said: str) -> None:
    write(zoo, dataset_fn=f"def dataset_fn(dataset, mode):\n    {body}")
    model_file = zoo.load("mine")
    with pytest.raises(EdlError) as caught:
        batches(model_file, float_images(4))
    assert caught.value.code == ErrorCode.MODEL_CONTRACT
    assert said in caught.value.what
    assert caught.value.where.endswith(", dataset_fn")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "dataset.apply(tf.data.experimental.shuffle_and_repeat(10, 1)).map(lambda r: (r, r))",
            "shuffles in mode PREDICTION",
        ),
        (
            "dataset.map(lambda r: (r, r)).bucket_by_sequence_length("
            "lambda r, _: tf.strings.length(r), [9], [2, 2])",
            "groups records in mode PREDICTION",
        ),
    ],
)
def test_predictions_in_a_different_order_are_refused(zoo: ZooFolder, body: str, said: str) -> None:
    write(zoo, dataset_fn=f"def dataset_fn(dataset, mode):\n    return {body}")
    model_file = zoo.load("mine", purpose=Mode.PREDICTION)
    with pytest.raises(EdlError) as caught:
        batches(model_file, float_images(4), mode=Mode.PREDICTION)
    assert said in caught.value.what


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([example(label=[1])], "Feature: image (data type: float) is required"),
        (
            [example(image=[1.0] * 784, label=[1.0])],
            "the feature label has values of the type float",
        ),
        ([example(image=[1.0] * 783, label=[1])], "image has another number of values"),
        ([b"no example at all"], "the record is no tf.Example"),
    ],
)
def test_a_record_that_does_not_fit(zoo: ZooFolder, records: list[bytes], said: str) -> None:
    write(zoo)
    model_file = zoo.load("mine")
    with pytest.raises(EdlError) as caught:
        batches(model_file, records)
    assert caught.value.code == ErrorCode.SHAPE_MISMATCH
    assert said in caught.value.what
    assert "function_node" not in caught.value.what
    assert "edl data inspect" in caught.value.remedy


def test_user_code_that_raises_while_it_processes_records(zoo: ZooFolder) -> None:
    write(
        zoo,
        dataset_fn="""
def bad(record):
    raise KeyError("no such digit")

def dataset_fn(dataset, mode):
    return dataset.map(lambda r: (tf.numpy_function(bad, [r], tf.float32), 1.0))
""",
    )
    model_file = zoo.load("mine")
    with pytest.raises(EdlError) as caught:
        batches(model_file, float_images(4))
    assert caught.value.code == ErrorCode.USER_CODE
    assert "no such digit" in caught.value.what
    assert caught.value.where == f"{zoo.root}/mine.py:{zoo.line('mine.py', 'no such')}, bad"


def test_a_dataset_function_that_raises_names_its_line(zoo: ZooFolder) -> None:
    write(
        zoo,
        dataset_fn="def dataset_fn(dataset, mode):\n"
        "    def parse(record):\n"
        "        return tf.strings.to_number(record) + tf.zeros([2, 'x'])\n"
        "    return dataset.map(parse)",
    )
    model_file = zoo.load("mine")
    with pytest.raises(EdlError) as caught:
        batches(model_file, float_images(4))
    assert caught.value.code == ErrorCode.USER_CODE
    assert caught.value.where == f"{zoo.root}/mine.py:{zoo.line('mine.py', 'to_number')}, parse"


@pytest.mark.parametrize(
    "wrong",
    ["float(record.numpy())", "record.to_number()", "1.0 if record == b'' else 2.0"],
)
def test_a_dataset_function_that_fails_whatever_the_records_breaks_the_contract(
    zoo: ZooFolder, wrong: str
) -> None:
    """Then no correction of the data helps, and none is recommended."""
    write(
        zoo,
        dataset_fn="def dataset_fn(dataset, mode):\n"
        "    def parse(record):\n"
        f"        value = {wrong}\n"
        "        return tf.strings.to_number(record), value\n"
        "    return dataset.map(tf.autograph.experimental.do_not_convert(parse))",
    )
    model_file = zoo.load("mine")
    with pytest.raises(EdlError) as caught:
        batches(model_file, float_images(4))
    assert caught.value.code == ErrorCode.MODEL_CONTRACT


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("raise SystemExit('no vocabulary')", "raised SystemExit: no vocabulary"),
        ("raise Wrong", "raised Wrong"),
    ],
)
def test_a_dataset_function_that_exits_or_raises_what_has_no_text(
    zoo: ZooFolder, body: str, what: str
) -> None:
    write(
        zoo,
        dataset_fn="class Wrong(Exception):\n"
        "    def __str__(self):\n"
        "        raise RuntimeError\n"
        f"def dataset_fn(dataset, mode):\n    {body}",
    )
    model_file = zoo.load("mine")
    with pytest.raises(EdlError) as caught:
        batches(model_file, float_images(4))
    assert caught.value.code == ErrorCode.USER_CODE
    assert caught.value.what.endswith(what)
    assert caught.value.where == f"{zoo.root}/mine.py:{zoo.line('mine.py', body)}, dataset_fn"


def test_records_of_different_shapes(zoo: ZooFolder) -> None:
    write(
        zoo,
        dataset_fn="def dataset_fn(dataset, mode):\n"
        "    return dataset.map(lambda r: (tf.io.decode_raw(r, tf.uint8), 1))",
    )
    model_file = zoo.load("mine")
    with pytest.raises(EdlError) as caught:
        batches(model_file, [b"ab", b"abc"])
    assert caught.value.code == ErrorCode.SHAPE_MISMATCH
    assert "different shapes" in caught.value.what


def test_features_and_inputs_of_different_shapes(zoo: ZooFolder) -> None:
    write(zoo, model=GOOD["model"].replace("Input((28, 28))", "Input((32, 32), name='picture')"))
    error = only(build_errors(zoo))
    assert error.code == ErrorCode.SHAPE_MISMATCH
    assert "(28, 28)" in error.what
    assert "(32, 32)" in error.what
    assert "picture" in error.what


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("map(parse).batch(3, drop_remainder=True)", "batches with drop_remainder=True"),
        (
            "map(parse).map(lambda x, y: (tf.boolean_mask(x, x > 0), y)).padded_batch(3)",
            "batches examples of no fixed shape",
        ),
    ],
)
def test_batches_of_which_no_minibatches_can_be_made(zoo: ZooFolder, call: str, what: str) -> None:
    write(zoo, dataset_fn=GOOD["dataset_fn"].replace("map(parse)", call))
    with pytest.raises(EdlError) as caught:
        batches(zoo.load("mine"), float_images(8))
    assert caught.value.code == ErrorCode.MODEL_CONTRACT
    assert f"dataset_fn(dataset, mode) {what}" in caught.value.what
    assert caught.value.where.endswith(", dataset_fn")


def test_features_and_inputs_of_different_names(zoo: ZooFolder) -> None:
    write(
        zoo,
        model="""
a, b = tf.keras.Input((28, 28), name="left"), tf.keras.Input((28, 28), name="right")
model = tf.keras.Model([a, b], tf.keras.layers.Flatten()(a + b))
""",
        dataset_fn=GOOD["dataset_fn"].replace(
            'return r["image"]', 'return {"left": r["image"], "rihgt": r["image"]}'
        ),
    )
    error = only(build_errors(zoo))
    assert error.code == ErrorCode.SHAPE_MISMATCH
    assert "right" in error.what
    assert "rihgt" in error.what


def test_what_tensorflow_has_removed_has_a_replacement(zoo: ZooFolder) -> None:
    uses = GOOD["dataset_fn"].replace(
        "    def parse", "    train = mode == tf.estimator.ModeKeys.TRAIN\n    def parse"
    )
    write(zoo, dataset_fn=uses)
    error = only(errors(zoo))
    assert "tf.estimator" in error.what
    assert "Mode.TRAINING" in error.remedy


def test_sample_weights_that_fit_no_example(zoo: ZooFolder) -> None:
    weighted = GOOD["dataset_fn"].replace('r["label"]\n', 'r["label"], tf.ones([3])\n')
    write(
        zoo,
        dataset_fn=weighted,
        loss="loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)",
    )
    error = only(build_errors(zoo))
    assert error.code == ErrorCode.SHAPE_MISMATCH
    assert "the sample weights of 8 examples have the shape (8, 3)" in error.what
    assert error.where.endswith(", dataset_fn")
