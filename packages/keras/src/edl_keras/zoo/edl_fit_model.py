"""The model that elasticdl.fit trains: edl_fit.json and edl_fit_code.py say what it is."""

import json
from pathlib import Path

import edl_fit_code
import keras
import tensorflow as tf

import recordio
from elasticdl import Mode

FIT = json.loads(Path(__file__).with_name("edl_fit.json").read_text(encoding="utf-8"))
keras.config.set_image_data_format(FIT["image_data_format"])
keras.config.set_dtype_policy(keras.saving.deserialize_keras_object(FIT["dtype_policy"]))


class _FunctionLoss(keras.losses.Loss):
    """A function of (labels, predictions), in this order whatever their names are."""

    def __init__(self, function, name):
        super().__init__(name=name)
        self._function = function

    def call(self, y_true, y_pred):
        is_flat = y_true.shape.rank is not None and y_true.shape.rank + 1 == y_pred.shape.rank
        if is_flat and y_pred.shape[-1] == 1:
            y_true = y_true[..., tf.newaxis]
        return self._function(y_true, y_pred)


def _make_model(described):
    if "arguments" not in described:
        return keras.saving.deserialize_keras_object(described)
    arguments = keras.saving.deserialize_keras_object(described["arguments"])
    return edl_fit_code.OBJECTS[described["class"]](**arguments)


def _as_loss(value):
    if isinstance(value, dict):
        return {name: _as_loss(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_loss(each) for each in value]
    if callable(value) and not isinstance(value, keras.losses.Loss) and value in _OWN_FUNCTIONS:
        return _FunctionLoss(value, value.__name__)
    return value


_OWN_FUNCTIONS = [each for each in edl_fit_code.OBJECTS.values() if not isinstance(each, type)]

with keras.saving.custom_object_scope(edl_fit_code.OBJECTS):
    model = _make_model(FIT["model"])
    if FIT["compiles_itself"]:
        model.compile_from_config(FIT["compile"])
    else:
        _arguments = keras.saving.deserialize_keras_object(FIT["compile"])
        model.compile(**{**_arguments, "loss": _as_loss(_arguments.get("loss"))})


def _parse(records, features):
    """Return tensors by path from a batch of records."""
    kinds = {"float": tf.float32, "int": tf.int64, "text": tf.string, "octets": tf.string}
    described = {
        each["name"]: tf.io.FixedLenFeature(
            () if each["stored"] == "octets" else each["shape"], kinds[each["stored"]]
        )
        for each in features
    }
    return tf.io.parse_example(records, described)


def _array(values, feature):
    value, dtype = values[feature["name"]], feature["dtype"]
    if feature["stored"] == "octets":
        kind = tf.uint8 if dtype == "bool" else tf.as_dtype(dtype)
        value = tf.reshape(tf.io.decode_raw(value, kind), (-1, *feature["shape"]))
    return value if value.dtype.name == dtype else tf.cast(value, dtype)


def _structure(values, features):
    """Return the arrays of one argument as they were nested there."""
    if not features[0]["path"]:
        return _array(values, features[0])
    inner = {}
    for feature in features:
        first, *rest = feature["path"]
        inner.setdefault(first, []).append({**feature, "path": rest})
    found = {key: _structure(values, each) for key, each in inner.items()}
    return found if isinstance(next(iter(found)), str) else tuple(found.values())


def dataset_fn(dataset, mode):
    layout = FIT["layout"]
    wanted = ("x",) if mode == Mode.PREDICTION else ("x", "y", "weights")
    parts = [layout[name] for name in wanted if layout[name]]

    def parse(records):
        values = _parse(records, [feature for part in parts for feature in part])
        found = tuple(_structure(values, part) for part in parts)
        return found if len(found) > 1 else found[0]

    return dataset.batch(FIT["batch_size"]).map(parse)


if FIT["layout"] is None:
    dataset_fn = edl_fit_code.dataset_fn


class TrainingMetrics(keras.callbacks.Callback):
    """Adds the metrics on the first records of the training data to the values of an epoch."""

    def __init__(self, data, records):
        super().__init__()
        self.data, self.records = data, records

    def on_epoch_end(self, epoch, logs=None):
        records = list(recordio.open_source(self.data).read(0, self.records))
        dataset = dataset_fn(tf.data.Dataset.from_tensor_slices(records), Mode.EVALUATION)
        found = self.model.evaluate(dataset, verbose=0, return_dict=True)
        logs.update({name: float(value) for name, value in found.items() if name != "loss"})


class EpochReport(keras.callbacks.Callback):
    """Writes the values of each epoch to the log, where elasticdl.fit reads them."""

    def on_epoch_end(self, epoch, logs=None):
        values = {name: float(value) for name, value in logs.items()}
        print(FIT["report"] + json.dumps({"epoch": epoch, "logs": values}), flush=True)


def callbacks():
    measured = FIT["training_metrics"]
    first = [TrainingMetrics(**measured)] if measured else []
    return [*first, *edl_fit_code.make_callbacks(), EpochReport()]
