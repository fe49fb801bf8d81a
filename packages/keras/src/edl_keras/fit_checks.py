"""Compares the arrays of ``fit`` with model, loss and metrics before anything starts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from edl.plugins.errors import Problem
from edl_keras.errors import kind_of, wrong_argument, wrong_model
from edl_keras.fit_data import ArrayData
from edl_keras.records import Array, flatten_arrays

try:
    from edl_worker.engines.tensorflow.model import compiled_fit, unadapted_layers
except ImportError:  # the workers are elsewhere: the first of them checks the rest
    _HAS_WORKER = False
else:
    _HAS_WORKER = True

_WORDS = (
    ("label - 1", "y - 1"),
    ("(label + 1) / 2", "(y + 1) / 2"),
    ("tf.argmax(label, -1)", "y.argmax(-1)"),
    ("tf.one_hot(label, ", "keras.utils.to_categorical(y, "),
    ("label[tf.newaxis]", "y[:, None]"),
    ("Yield", "Give"),
    ("yields", "gives"),
    ("yield", "give"),
)
"""What messages about input functions say, and what they say about arrays."""


def check_source(x: Any, options: Mapping[str, Any]) -> None:
    """Check that the data is no generator, and say all that this means for the arguments.

    Raises:
        Problem: it is one.
    """
    if not hasattr(x, "__next__") and not isinstance(x, keras.utils.PyDataset):
        return
    steps = [name for name in ("steps_per_epoch", "validation_steps") if options.get(name)]
    also = f", and {' and '.join(steps)} out" if steps else ""
    raise wrong_argument(
        "x",
        f"x is a {kind_of(x)}, and no job can know how many rows it has",
        "Collect what it yields into arrays, such as x = np.concatenate([...]), and leave the "
        f"generator{also}: an epoch is one pass over all rows. More data than "
        "fits into memory goes into files: elasticdl.train.",
    )


def check_fit(model: keras.Model, data: ArrayData, x: Any) -> None:
    """Check that a functional model takes the arrays, and that its loss takes the labels.

    Args:
        x: as it was given.

    Raises:
        Problem: they do not fit.
    """
    _check_layers(model)
    try:
        inputs = list(getattr(model, "inputs", None) or ())
    except (AttributeError, ValueError):  # it has not been built
        return
    if not inputs:
        return
    for label, array, wanted in _pair(model, inputs, data, x):
        _check_type(label, array, wanted)
        _check_shape(label, array, wanted)
    if data.y is None:
        return
    _check_labels(model, data)
    if not _HAS_WORKER:
        return
    error = compiled_fit.find_compiled_misfit(model, data.y)
    if error is not None:
        raise Problem(
            "SHAPE_MISMATCH", error.what, where=error.where, remedy=_for_arrays(error.remedy)
        )


def _check_labels(model: keras.Model, data: ArrayData) -> None:
    given = list(flatten_arrays(data.y))
    names = list(getattr(model, "output_names", None) or ["output"])
    if len(given) == len(names) or overrides_step(model):
        return
    if isinstance(data.y, dict) and set(data.y) <= set(names):
        return  # some outputs have no loss
    raise wrong_argument(
        "y",
        f"y has {len(given)} array{'s' * (len(given) != 1)}, and the model has {len(names)} "
        f"output{'s' * (len(names) != 1)} ({', '.join(names)})",
        "Give one array of labels for each output, y=[first, second] in their order or a dict by "
        "their names."
        if len(names) > 1
        else "Join the arrays, np.stack([first, second], axis=-1), or give the model an output for "
        "each.",
    )


def count_classes(model: keras.Model) -> int | None:
    """Return how many classes a model with one output has; None if that is not known."""
    try:
        units = [each.shape[-1] for each in getattr(model, "outputs", None) or ()]
    except (AttributeError, ValueError):  # it has not been built
        return None
    return max(2, units[0]) if len(units) == 1 and units[0] else None


def overrides_step(model: keras.Model) -> bool:
    """Return whether a model has a training step of its own, which may take anything."""
    own = (type(model).train_step, type(model).compute_loss)
    return own != (keras.Model.train_step, keras.Model.compute_loss)


def _check_layers(model: keras.Model) -> None:
    for layer in _layers(model) if _HAS_WORKER else ():
        if isinstance(layer, keras.layers.Normalization) and unadapted_layers.is_unadapted(layer):
            raise wrong_model(
                f"Normalization {layer.name} was never adapted: it subtracts 0 and divides by 1",
                f"Call {layer.name}.adapt(x) before fit, or leave the layer out.",
            )


def _layers(model: keras.Model) -> Iterator[keras.layers.Layer]:
    for layer in model.layers:
        yield layer
        if isinstance(layer, keras.Model):
            yield from _layers(layer)


def _pair(
    model: keras.Model, inputs: list[Any], data: ArrayData, x: Any
) -> Iterator[tuple[str, Array, Any]]:
    """Yield how each array is called, the array, and the input that gets it."""
    named = dict(zip((each.name for each in inputs), inputs, strict=True))
    own = None if isinstance(model, keras.Sequential) else model.input
    if isinstance(own, Mapping):
        named = {str(key): value for key, value in own.items()}
    arrays = list(flatten_arrays(data.x))
    if isinstance(data.x, dict) and not (len(arrays) == len(inputs) == 1):
        if len(inputs) == 1 and hasattr(x, "columns"):
            raise _text_columns(data.x)
        missing = [name for name in named if name not in data.x]
        if missing:
            raise wrong_argument(
                "x",
                f"the model has the inputs {', '.join(named)}, and x the keys {', '.join(data.x)}",
                f"Give x the key {missing[0]!r}, or the input the name that x has: "
                "keras.Input(..., name=...).",
            )
        for name, wanted in named.items():
            yield f"x[{name!r}]", data.x[name], wanted
        return
    if len(arrays) != len(inputs):
        names = ", ".join(each.name for each in inputs)
        raise wrong_argument(
            "x",
            f"x has {len(arrays)} array{'s' * (len(arrays) != 1)}, and the model has {len(inputs)} "
            f"input{'s' * (len(inputs) != 1)} ({names})",
            "Give one array for each input, x=[first, second] in their order or a dict by their "
            "names."
            if len(inputs) > 1
            else "Join the arrays, np.concatenate([first, second], axis=-1), or give the model an "
            "input for each.",
        )
    for (path, array), wanted in zip(arrays, inputs, strict=True):
        yield "x" + "".join(f"[{part!r}]" for part in path), array, wanted


def _text_columns(columns: Mapping[str, Array]) -> Problem:
    texts = [name for name, array in columns.items() if array.dtype.kind not in "biuf"]
    first = texts[0] if texts else next(iter(columns))
    return wrong_argument(
        "x",
        f"the table has columns without numbers ({', '.join(texts)}), so each column is an array "
        f"of its own, and the model has one input for {len(columns)} columns",
        f"Make numbers of them, x[{first!r}].astype('category').cat.codes, leave them out, or give "
        f"the model an input for each column: keras.Input((1,), name={first!r}, dtype='string').",
    )


def _name(model_input: Any) -> str:
    """Return how a message calls an input, whose name Keras may have made up."""
    is_made_up = model_input.name.startswith(("keras_tensor", "input_layer"))
    return "input" if is_made_up else f"input {model_input.name}"


def _check_type(label: str, array: Array, wanted: Any) -> None:
    is_text = array.dtype.kind in "OSU"
    if is_text != (wanted.dtype == "string"):
        raise wrong_argument(
            "x",
            f"{label} has {'texts' if is_text else 'numbers'}, and the model's {_name(wanted)} "
            f"takes {wanted.dtype}",
            f'Write keras.Input({tuple(wanted.shape[1:])}, dtype="string") before a StringLookup '
            "or TextVectorization, or give numbers."
            if is_text
            else f"Give texts, {label}.astype(str), or an input of numbers.",
        )


def _check_shape(label: str, array: Array, wanted: Any) -> None:
    found, shape = tuple(array.shape[1:]), tuple(wanted.shape[1:])
    if any(_agree(found, each) for each in (shape, (*shape, 1), _without_last(shape))):
        return
    sizes = ", ".join(map(str, shape))
    if len(found) > 1 and found != shape and None not in shape and _may_turn(found, shape):
        # A reshape would mix what belongs to different places.
        remedy = f"Write {label}.transpose({_order(found, shape)}): the dimensions are in another"
        remedy += f" order. Or begin the model with keras.Input({found})."
    elif None not in shape and math.prod(found) == math.prod(shape):
        remedy = (
            f"Write {label}.reshape(-1, {sizes}), or begin the model with keras.Input({found})."
        )
    else:
        remedy = f"Begin the model with keras.Input({found}), or give rows of the shape {shape}."
    raise wrong_argument(
        "x",
        f"{label} has rows of the shape {found}, and the model's {_name(wanted)} takes {shape}",
        remedy,
    )


def _may_turn(found: tuple[int, ...], shape: tuple[int | None, ...]) -> bool:
    return sorted(found) == sorted(size for size in shape if size is not None)


def _order(found: tuple[int, ...], shape: tuple[int | None, ...]) -> str:
    """Return which dimensions of an array come in which order to have a shape."""
    left = list(enumerate(found, 1))
    order = [0]
    for wanted in shape:
        at = next(number for number, size in left if size == wanted)
        left = [each for each in left if each[0] != at]
        order.append(at)
    return ", ".join(map(str, order))


def _without_last(shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
    return shape[:-1] if shape[-1:] == (1,) else shape


def _agree(found: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    pairs = zip(found, wanted, strict=False)
    return len(found) == len(wanted) and all(b is None or a == b for a, b in pairs)


def _for_arrays(text: str) -> str:
    for old, new in _WORDS:
        text = text.replace(old, new)
    return text


def name_in_fit(text: str) -> str:
    """Return a text of a job with the names that the arguments of ``fit`` have."""
    for old, new in (("minibatch_size", "batch_size"), ("num_epochs", "epochs")):
        text = text.replace(f"--{old.replace('_', '-')}", new).replace(old, new)
    return text
