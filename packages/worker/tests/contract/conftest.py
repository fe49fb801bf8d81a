"""Model zoos written for a test, small made data, and a plain training loop."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from edl_worker.contract import Batch, ModelChoice, ModelFile, load
from elasticdl.python.common.constants import Mode

SEEDS = Path(__file__).parent / "seeds"
IMPORTS = """\
import tensorflow as tf
import numpy as np
from elasticdl import ElasticDLSpec
from elasticdl.python.common.constants import Mode
"""


def feature(value: Any) -> tf.train.Feature:
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    array = np.asarray(value).reshape(-1)
    if array.dtype.kind in "iu":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=array.tolist()))
    return tf.train.Feature(float_list=tf.train.FloatList(value=array.tolist()))


def example(**values: Any) -> bytes:
    features = {name: feature(value) for name, value in values.items()}
    message = tf.train.Example(features=tf.train.Features(feature=features))
    content: bytes = message.SerializeToString()
    return content


def pictures(count: int, shape: tuple[int, ...]) -> Iterator[tuple[np.ndarray, int]]:
    """Images of 0 to 255 with a bright stripe whose place tells the class."""
    rng = np.random.default_rng(1)
    for index in range(count):
        label = index % 10
        image = rng.integers(0, 60, shape)
        image[2 * label : 2 * label + 4] += 150
        yield image, label


def float_images(count: int, shape: tuple[int, ...] = (28, 28)) -> list[bytes]:
    """Images as numbers, as ``tf.io.FixedLenFeature([28, 28], tf.float32)`` reads them."""
    return [
        example(image=image.astype(np.float32), label=np.array([label], np.int64))
        for image, label in pictures(count, shape)
    ]


def byte_images(count: int, shape: tuple[int, ...] = (28, 28)) -> list[bytes]:
    """The same as bytes, which an ``input_fn`` reads with ``np.frombuffer``."""
    return [
        example(image=image.astype(np.uint8).tobytes(), label=np.array([label], np.int64))
        for image, label in pictures(count, shape)
    ]


def in_blocks(records: Sequence[bytes], size: int = 7) -> Callable[[], Iterator[list[bytes]]]:
    return lambda: (list(records[i : i + size]) for i in range(0, len(records), size))


def batches(
    model_file: ModelFile,
    records: Sequence[bytes],
    *,
    mode: Mode = Mode.TRAINING,
    size: int = 16,
    seed: int = 3,
    **more: Any,
) -> list[Batch]:
    return list(
        model_file.batches(in_blocks(records), mode=mode, minibatch_size=size, seed=seed, **more)
    )


def train(
    model_file: ModelFile, records: Sequence[bytes], *, epochs: int = 1, size: int = 16, **more: Any
) -> list[float]:
    """The loss of each step of a plain loop."""
    first = batches(model_file, records, size=size, **more)[0]
    model_file.build(first)
    variables = model_file.model.trainable_variables
    model_file.optimizer.build(variables)

    @tf.function
    def step(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = model_file.call(features, training=True)
            loss = model_file.compute_loss(outputs, labels)
        gradients = tape.gradient(loss, [v.value for v in variables])
        model_file.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    losses = []
    for epoch in range(epochs):
        for batch in batches(model_file, records, size=size, seed=epoch, **more):
            losses.append(float(step(batch.features, batch.labels)))
    return losses


def evaluate(model_file: ModelFile, records: Sequence[bytes], **more: Any) -> dict[str, float]:
    metrics = model_file.new_metrics()
    for batch in batches(model_file, records, mode=Mode.EVALUATION, **more):
        metrics.update(batch.labels, model_file.call(batch.features, training=False))
    return metrics.result()


class ZooFolder:
    """A model zoo that a test writes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, source: str, *, imports: bool = True) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((IMPORTS if imports else "") + textwrap.dedent(source))
        return target

    def seed(self, path: str, document: str, *names: str) -> Path:
        """A file made of a document's own blocks, with imports in front."""
        blocks = [(SEEDS / document / f"{name}.txt").read_text() for name in names]
        target = self.root / path
        target.write_text(IMPORTS + "\n".join(blocks))
        return target

    def choice(self, model_def: str, **options: str) -> ModelChoice:
        return ModelChoice(str(self.root), model_def, **options)

    def load(self, model_def: str, **options: Any) -> ModelFile:
        keep = {k: options.pop(k) for k in ("context", "purpose", "seed") if k in options}
        return load(self.choice(model_def, **options), **keep)

    def line(self, path: str, text: str) -> int:
        """Number of the first line that contains ``text``."""
        lines = (self.root / path).read_text().splitlines()
        return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.fixture
def zoo(tmp_path: Path) -> ZooFolder:
    return ZooFolder(tmp_path)
