"""The examples of the design documents, unchanged except for imports in front."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from example_data import byte_images, example, float_images
from plain_loop import batches, evaluate, train
from zoo_folder import DESIGN_DOCUMENTS, ZooFolder

from edl_proto.errors import ErrorCode
from edl_worker.model_file.errors import ContractErrors
from edl_worker.model_file.zoo.compatibility import CompatibilityWarning
from elasticdl.python.common.constants import Mode

FIRST = ("dataset_fn", "loss", "optimizer", "eval_metrics_fn")
SECOND = ("input_fn", "feature_columns", "label_columns", "loss", "optimizer")


@pytest.mark.parametrize("model", ["model_functional", "model_subclass"])
def test_first_contract(zoo: ZooFolder, model: str) -> None:
    zoo.write_document_blocks("mnist.py", "contribution", model, *FIRST)
    model_file = zoo.load("mnist", seed=1)
    records = float_images(160)
    with pytest.warns(CompatibilityWarning, match=r"Tensor\.flatten") as warned:
        losses = train(model_file, records, epochs=2)
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])
    assert {(w.filename, w.lineno) for w in warned if w.category is CompatibilityWarning} == {
        (str(zoo.root / "mnist.py"), zoo.line("mnist.py", "labels.flatten()"))
    }
    assert set(evaluate(model_file, records)) == {"loss", "accuracy"}


@pytest.mark.parametrize("model", ["model_functional", "model_subclass"])
def test_first_contract_predicts_from_records_without_labels(zoo: ZooFolder, model: str) -> None:
    zoo.write_document_blocks("mnist.py", "contribution", model, *FIRST)
    model_file = zoo.load("mnist", purpose=Mode.PREDICTION)
    records = [example(image=np.full((28, 28), i, np.float32)) for i in range(20)]
    found = batches(model_file, records, mode=Mode.PREDICTION)
    model_file.build(found[0])
    assert [(batch.labels, batch.size) for batch in found] == [(None, 16), (None, 4)]
    first = np.concatenate([batch.features["image"][:, 0, 0] for batch in found])
    np.testing.assert_allclose(first, np.arange(20) / 255, rtol=1e-6)
    assert model_file.call(found[1].features, training=False).shape == (4, 10)


@pytest.mark.parametrize("model", ["model_functional", "model_subclass"])
def test_second_contract(zoo: ZooFolder, model: str) -> None:
    zoo.write_document_blocks("mnist.py", "building", model, *SECOND)
    with pytest.warns(CompatibilityWarning) as warned:
        model_file = zoo.load("mnist", seed=1)
    said = [str(w.message) for w in warned if w.category is CompatibilityWarning]
    assert len(said) == 2
    assert said[0].startswith("EagerTensor ")
    assert said[1].startswith("tf.train.GradientDescentOptimizer ")
    records = byte_images(160)
    batch = batches(model_file, records)[0]
    assert batch.features["image"].shape == (16, 1, 28, 28)
    assert batch.features["image"].dtype == tf.float32
    assert batch.labels.dtype == tf.int64
    losses = train(model_file, records, epochs=2)
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


def test_second_contract_predicts_although_its_function_reads_the_label(zoo: ZooFolder) -> None:
    zoo.write_document_blocks("mnist.py", "building", "model_functional", *SECOND)
    model_file = zoo.load("mnist", purpose=Mode.PREDICTION)
    records = [example(image=bytes(784)) for _ in range(3)]
    (batch,) = batches(model_file, records, mode=Mode.PREDICTION)
    assert batch.labels is None
    assert model_file.call(batch.features, training=False).shape == (3, 10)


def test_class_of_third_document_has_an_undefined_name(zoo: ZooFolder) -> None:
    zoo.write_document_blocks("mnist.py", "api", "mnist_spec")
    with pytest.raises(ContractErrors) as caught:
        zoo.load("mnist.MnistElasticDLSpec")
    (error,) = caught.value.errors
    assert error.code == ErrorCode.MODEL_CONTRACT
    line = zoo.line("mnist.py", "logits=output,")
    assert error.where == f"{zoo.root}/mnist.py:{line}, create_loss"
    assert "output" in error.what
    assert "outputs" in error.remedy


def test_class_of_third_document_trains_with_that_name_corrected(zoo: ZooFolder) -> None:
    path = zoo.write_document_blocks("mnist.py", "api", "mnist_spec")
    path.write_text(path.read_text().replace("logits=output,", "logits=outputs,"))
    model_file = zoo.load("mnist", seed=1, context={"worker_id": 1})
    records = float_images(160)
    losses = train(model_file, records, epochs=2)
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])
    assert set(evaluate(model_file, records)) == {"loss", "accuracy"}


def test_base_class_of_third_document_is_indented_wrongly(zoo: ZooFolder) -> None:
    zoo.write_document_blocks("mnist.py", "api", "elasticdl_spec", "mnist_spec")
    with pytest.raises(ContractErrors) as caught:
        zoo.load("mnist.MnistElasticDLSpec")
    (error,) = caught.value.errors
    assert error.code == ErrorCode.MODEL_IMPORT
    assert error.where == f"{zoo.root}/mnist.py:{zoo.line('mnist.py', '         pass')}"
    assert "unexpected indent" in error.what


def test_a_base_class_in_the_file_itself_is_accepted(zoo: ZooFolder) -> None:
    path = zoo.write_document_blocks("mnist.py", "api", "elasticdl_spec", "mnist_spec")
    text = path.read_text().replace("\n         pass\n", "\n        pass\n")
    text = text.replace("logits=output,", "logits=outputs,")
    path.write_text("from abc import abstractmethod\n" + text)
    model_file = zoo.load("mnist")
    assert model_file.form == "spec"
    assert len(train(model_file, float_images(32))) == 2


def test_the_blocks_are_unchanged() -> None:
    """Correcting a block to make a test pass would change what is tested."""
    assert "labels=labels.flatten()" in (DESIGN_DOCUMENTS / "contribution" / "loss.txt").read_text()
    assert (
        "isinstance(data, EagerTensor)"
        in (DESIGN_DOCUMENTS / "building" / "input_fn.txt").read_text()
    )
    assert (
        "logits=output, labels=labels" in (DESIGN_DOCUMENTS / "api" / "mnist_spec.txt").read_text()
    )
