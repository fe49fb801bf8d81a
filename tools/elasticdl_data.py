"""Data that ElasticDL's own model files can learn, in the format that each of them reads.

All of it is drawn, but the digits. A label follows from the features: where several columns of a
table decide, from the sum of what each value of each column counts.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import digits
import recordio.example

Array = np.ndarray[Any, Any]


Write = Callable[[Path], int]


@dataclass(frozen=True)
class Trial:
    """The data and options that a model file is trained with.

    Attributes:
        write: writes the data into a new folder, below ``train`` and ``test``, and returns the
            number of records of the former.
        classes: all of them equally frequent.
        epochs: how often the model sees the former.
    """

    write: Write
    classes: int
    epochs: int


class Real(NamedTuple):
    """A column of float numbers, equally likely between these two."""

    low: float
    high: float


class Whole(NamedTuple):
    """A column of integers, equally likely from ``low`` to below ``high``."""

    low: int
    high: int


Columns = Mapping[str, Real | Whole | tuple[str, ...]]
"""By name; a tuple is a column of these words."""


def _draw(columns: Columns, classes: int, count: int) -> tuple[dict[str, Array], Array]:
    """Values by column, each ``[count]``, and labels ``[count]`` from 0."""
    random = np.random.default_rng(1)
    values, score = {}, np.zeros(count)
    for name, column in columns.items():
        match column:
            case Real(low, high):
                values[name] = random.uniform(low, high, count).astype(np.float32)
                score += (values[name] - low) / (high - low)
            case Whole(low, high):
                values[name] = random.integers(low, high, count)
                score += (values[name] - low) / (high - 1 - low)
            case _:
                drawn = random.integers(0, len(column), count)
                values[name] = np.array(column)[drawn]
                score += drawn / (len(column) - 1)
    bounds = np.quantile(score, np.arange(1, classes) / classes)
    return values, np.searchsorted(bounds, score)


def _split(place: Path, records: list[bytes]) -> int:
    """Write records, of which the last fifth is for the test."""
    cut = len(records) * 4 // 5
    digits.write(place / "train", records[:cut], 2, "part")
    digits.write(place / "test", records[cut:], 1, "part")
    return cut


def _examples(columns: Columns, label: str, count: int = 2000) -> Write:
    """Records of one value for each column, and a label of two classes."""

    def write(place: Path) -> int:
        values, labels = _draw(columns, 2, count)
        values[label] = labels
        return _split(
            place,
            [
                recordio.example.encode(
                    {
                        name: [str(column[row]).encode()]
                        if column.dtype.kind == "U"
                        else column[row : row + 1]
                        for name, column in values.items()
                    }
                )
                for row in range(count)
            ],
        )

    return write


def _rows(columns: Columns, label: str, classes: int, count: int = 1000) -> Write:
    """Rows of CSV with a header; the label is the last column."""

    def write(place: Path) -> int:
        values, labels = _draw(columns, classes, count)
        rows = list(zip(*values.values(), labels, strict=True))
        cut = count * 4 // 5
        for name, part in (("train", rows[:cut]), ("test", rows[cut:])):
            (place / name).mkdir(parents=True)
            with (place / name / "rows.csv").open("w", newline="") as file:
                csv.writer(file).writerows([(*values, label), *part])
        return cut

    return write


def _lists(column: Whole, length: int, count: int = 2000) -> Write:
    """Records with a list of ids, and a label of two classes."""
    low, high = column
    step = (high - low) // length
    fields = {str(n): Whole(low + n * step, low + n * step + 5) for n in range(length)}

    def write(place: Path) -> int:
        values, labels = _draw(fields, 2, count)
        lists = np.stack(list(values.values()), axis=1)
        return _split(
            place,
            [
                recordio.example.encode({"feature": ids, "label": labels[row : row + 1]})
                for row, ids in enumerate(lists)
            ],
        )

    return write


def _digits(place: Path) -> int:
    return _split(place, digits.records(*digits.load()))


def _coloured_digits(place: Path) -> int:
    images, labels = digits.load()
    return _split(place, digits.records(digits.colour(images), labels))


def _photographs(jpeg: bool) -> Write:
    """Images of the colour of their class: files with labels from 1, or numbers, from 0."""

    def write(place: Path) -> int:
        from PIL import Image

        random = np.random.default_rng(1)
        colours = random.integers(60, 196, (10, 3))
        records = []
        for number in range(80):
            pixels = colours[number % 10] + random.integers(-60, 60, (224, 224, 3))
            image: Array | list[bytes] = pixels.astype(np.float32).reshape(-1)
            if jpeg:
                file = io.BytesIO()
                Image.fromarray(pixels.astype(np.uint8)).save(file, "JPEG")
                image = [file.getvalue()]
            label = np.array([number % 10 + jpeg])
            records.append(recordio.example.encode({"image": image, "label": label}))
        return _split(place, records)

    return write


def _words(stem: str, count: int) -> tuple[str, ...]:
    return tuple(f"{stem}-{number}" for number in range(count))


_MNIST = Trial(_digits, classes=10, epochs=4)
_CIFAR10 = Trial(_coloured_digits, classes=10, epochs=4)

_CENSUS: Columns = {
    "age": Real(17, 90),
    "workclass": ("Private", "Self-emp-inc", "Federal-gov", "Local-gov", "Without-pay"),
    "education": _words("education", 8),
    "marital-status": ("Divorced", "Never-married", "Separated", "Widowed"),
    "occupation": _words("occupation", 8),
    "relationship": ("Wife", "Own-child", "Husband", "Unmarried"),
    "race": ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
    "sex": ("Female", "Male"),
    "capital-gain": Real(5000, 9000),
    "capital-loss": Real(1500, 4500),
    "hours-per-week": Real(5, 65),
    "native-country": _words("country", 8),
}
_IRIS: Columns = dict.fromkeys(
    ("sepal_length", "sepal_width", "petal_length", "petal_width"), Real(0, 2)
)
_HEART: Columns = {
    "age": Whole(20, 80),
    "trestbps": Whole(90, 200),
    "chol": Whole(120, 560),
    "thalach": Whole(70, 200),
    "oldpeak": Real(0, 6),
    "slope": Whole(0, 4),
    "ca": Whole(0, 4),
    "thal": ("fixed", "normal", "reversible"),
}
_CLICKS: Columns = {
    **{f"I{number}": Whole(0, 10) for number in range(1, 14)},
    **{f"C{number}": Whole(0, 10) for number in range(1, 27)},
}

# Its networks take numbers as they are; those of thousands would drown all else.
_SCALED: Columns = {
    name: Real(0, 1) if isinstance(column, Real) else column for name, column in _CENSUS.items()
}
_PEOPLE = Trial(_examples(_SCALED, "label"), classes=2, epochs=10)
_FRAPPE = Trial(_lists(Whole(1, 5383), 10), classes=2, epochs=20)

TRIALS = {
    "mnist*/mnist_functional_api": _MNIST,
    "mnist*/mnist_subclass": _MNIST,
    "cifar10*/cifar10_functional_api": _CIFAR10,
    "cifar10*/cifar10_subclass": _CIFAR10,
    "cifar10/cifar10_mob*netv2": Trial(_coloured_digits, classes=10, epochs=1),
    "cifar10/cifar10_resnet50": Trial(_coloured_digits, classes=10, epochs=5),
    "resnet50_subclass/resnet50_subclass": Trial(_photographs(jpeg=True), classes=10, epochs=10),
    "imagenet_resnet50/imagenet_resnet50": Trial(_photographs(jpeg=True), classes=10, epochs=1),
    "odps_iris_dnn_model/odps_iris_dnn_model": Trial(_rows(_IRIS, "class", 3), 3, epochs=20),
    "heart_functional_api/heart_functional_api": Trial(_examples(_HEART, "target"), 2, epochs=10),
    "census_dnn_model/census_functional_api": _PEOPLE,
    "census_dnn_model/census_sequential": _PEOPLE,
    "census_dnn_model/census_subclass": _PEOPLE,
    "census_model_sqlflow/dnn/census_functional": _PEOPLE,
    "census_model_sqlflow/wide_and_deep/wide_deep_*": _PEOPLE,
    "census_wide_deep_model/wide_deep_functional_api": Trial(
        _examples(_CENSUS, "label"), classes=2, epochs=30
    ),
    "deepfm_functional_api/deepfm_functional_api": _FRAPPE,
    "deepfm_edl_embedding/deepfm_edl_embedding": _FRAPPE,
    "deepctr/wdl": Trial(_examples(_CLICKS, "label"), classes=2, epochs=1),
    "dac_ctr/elasticdl_train": Trial(_examples(_CLICKS, "label"), classes=2, epochs=1),
}
"""By a pattern of the file's path in the model zoo, without ``.py``: the files with a model.

All other files help these, have a training loop of their own, or are of other projects.
"""

EARLIER = {
    ("resnet50_subclass/resnet50_subclass", "[224, 224, 3], tf.float32"): Trial(
        _photographs(jpeg=False), classes=10, epochs=1
    ),
    ("census_wide_deep_model/wide_deep_functional_api", "record[-1]"): Trial(
        _rows(_CENSUS, "income", 2, count=2000), classes=2, epochs=30
    ),
}
"""Versions of files that read other data, by what only these have in their text."""


def trial(path: Path, zoo: Path) -> Trial | None:
    """Return the trial of the file at a path; None if the file has no model."""
    file = path.relative_to(zoo).with_suffix("").as_posix()
    for (name, text), found in EARLIER.items():
        if file == name and text in path.read_text():
            return found
    return next((found for name, found in TRIALS.items() if fnmatch(file, name)), None)
