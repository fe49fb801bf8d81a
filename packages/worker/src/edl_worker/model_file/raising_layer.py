"""Which layer of Keras raised an error, what it got, and from which layer that came."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from edl_worker.model_file.explanation import ADAPT
from edl_worker.model_file.framework_types import leaves
from edl_worker.model_file.source_lines import line_of_element

Producer = Callable[[Any], tuple[Any, int] | None]
"""Returns the layer that made a symbolic tensor, and which of its outputs that is."""
_producers: list[Producer] = []
_FLATTENING = re.compile(r"Flatten|Global\w+Pooling")
_SERIES = 2
"""Dimensions of a series, without that of the examples."""
_FAR = 100
"""Layers between an input and the layer that raises."""
_MAX_ARGUMENTS, _MAX_SHOWN = 4, 40
_NEEDED_RANK = re.compile(
    r"expected (?:min_)?ndim=(\d), found|at least (\d)(?: dimensions|D)"
    r"|(\d)D (?:input|tensor)|rank (?:at least |of at least |>= ?)?(\d)\b"
)
"""The number of dimensions that a message asks for, with that of the examples."""
_RECURRENT = ("LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional", "ConvLSTM")


@dataclass(frozen=True, slots=True)
class Got:
    """A tensor that a layer got.

    Attributes:
        shape: without the dimension of the examples.
        maker: the layer that made it, or an input; None if that is not known.
        origin: name of the input from which it comes, if that is only one.
    """

    shape: tuple[int | None, ...]
    maker: Any
    origin: str = ""

    @property
    def name(self) -> str:
        return getattr(self.maker, "name", "") or ""

    @property
    def kind(self) -> str:
        return type(self.maker).__name__ if self.maker is not None else ""

    @property
    def lacks_vocabulary(self) -> bool:
        """Whether it comes from a layer that encodes words, of which that layer has none."""
        is_lookup = self.kind in ("StringLookup", "IntegerLookup", "TextVectorization")
        return is_lookup and not self.maker.get_vocabulary(include_special_tokens=False)

    def __str__(self) -> str:
        shape = str(("n", *self.shape)).replace("'", "")
        return f"{shape} from {self.name}" if self.name else shape


@dataclass(frozen=True, slots=True)
class RaisingLayer:
    """A layer, or another operation of Keras, that raised when it was called.

    Attributes:
        layer: the object.
        got: the tensors that it was called with.
    """

    layer: Any
    got: tuple[Got, ...]

    @property
    def kind(self) -> str:
        return type(self.layer).__name__

    def __str__(self) -> str:
        name = getattr(self.layer, "name", "") or self.kind
        return f"{name} gets {', '.join(map(str, self.got))}"

    def remedy(self, message: str) -> str:
        """Return what to do about the message of an error; empty if that is not known."""
        if (lacking := re.search(r"missing a required argument: '(\w+)'", message)) is not None:
            return self._call_with(lacking.group(1))
        if re.search(r"size would be (?:zero or )?negative|output size .* negative", message):
            return (
                "What the layer gets is smaller than its window: leave this layer or an earlier "
                'pooling out, write padding="same", or give the model larger inputs.'
            )
        if found := self._complete_rank(message):
            return found
        if "must be fully-defined" in message and any(None in each.shape for each in self.got):
            if unadapted := next((each.name for each in self.got if each.lacks_vocabulary), ""):
                return f"{unadapted} has no vocabulary yet, so its output has no size. {ADAPT}"
            maker = next(each.name for each in self.got if None in each.shape) or "the layer before"
            return (
                f"{maker} gives a length that is not known: give it a fixed one, such as "
                "output_sequence_length=100 or a number instead of None in keras.Input."
            )
        if re.search(r"expects \d+ input\(s\), but it received", message):
            return self._choose_one()
        if len({len(each.shape) for each in self.got}) > 1:
            return self._equalize_dimensions()
        if found := self._name_axis(message):
            return found
        if self.kind in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"):
            return (
                "Give all of them one shape, for example with a keras.layers.Dense or Conv2D of as "
                f"many units on the way: {self}."
            )
        return ""

    def suggest_change(self) -> str:
        """Return what to do if nothing more is known."""
        given = _describe_arguments(self.layer)
        shown = f" ({given})" if given else ""
        return f"Change the arguments of {self.kind}{shown}, or what it gets: {self}."

    def _choose_one(self) -> str:
        """Return how to give a layer one of the tensors that it got."""
        makers = {each.name for each in self.got}
        if len(makers) == 1 and (name := makers.pop()):
            return (
                f"{name} returns {len(self.got)} tensors, such as states (return_state=True): take "
                "the one that you need, x, *states = ..."
            )
        return "Join the tensors first: keras.layers.concatenate([a, b])."

    def _call_with(self, name: str) -> str:
        """Return how to call a layer that lacks an argument."""
        parameters = inspect.signature(self.layer.call).parameters.values()
        needed = [each.name for each in parameters if each.default is inspect.Parameter.empty]
        needed = [each for each in needed if each not in ("args", "kwargs")]
        text = f"Give it the argument {name!r}, too: {self.kind}(...)({', '.join(needed)})."
        if needed[:2] == ["query", "value"]:
            text += " For self-attention both are the same: (x, x)."
        return text

    def _name_axis(self, message: str) -> str:
        """Return what to do about a dimension that the layer counts on, and that is not there."""
        if "Attention" in self.kind and any(len(each.shape) < _SERIES for each in self.got):
            return (
                f"{self.kind} takes series, (steps, features) for each example: begin with "
                f"keras.Input((steps, features)), or add a Reshape before it. {self}."
            )
        if isinstance(getattr(self.layer, "axis", None), int) and "index out of range" in message:
            return f"axis={self.layer.axis} is no dimension of what it gets; {self}."
        return ""

    def _complete_rank(self, message: str) -> str:
        """Return what to do about a tensor with fewer dimensions than a message asks for."""
        needed = _NEEDED_RANK.search(message)
        if needed is None or len(self.got) != 1:
            return ""
        rank = int(next(filter(None, needed.groups())))
        return self._add_dimension(self.got[0]) if rank > len(self.got[0].shape) + 1 else ""

    def _add_dimension(self, got: Got) -> str:
        """Return what to do about a tensor that has one dimension too few."""
        if got.kind.startswith(_RECURRENT):
            return (
                f"Write return_sequences=True in {got.name}: without it, {got.kind} returns only "
                "its last step."
            )
        if _FLATTENING.match(got.kind):
            return f"Leave {got.name} out before {self.layer.name}, or place it after."
        if got.kind != "InputLayer":
            return ""
        sizes = ", ".join(map(str, got.shape))
        if self.kind.startswith(("Conv", "Separable", "Depthwise", "MaxPool", "Average", "Global")):
            return (
                f"Add the dimension of the channels: keras.Input(({sizes}, 1)), and in the input "
                "function x[..., tf.newaxis]. An image is (height, width, channels), a series "
                "(steps, features)."
            )
        if self.kind.startswith(_RECURRENT):
            return (
                f"A series is (steps, features): keras.Input(({sizes}, 1)) if each step is one "
                "number, and in the input function x[..., tf.newaxis]."
            )
        return ""

    def _equalize_dimensions(self) -> str:
        """Return what to do about tensors with different numbers of dimensions."""
        most = max(len(each.shape) for each in self.got)
        for each in self.got:
            if each.origin and not each.shape and most == 1:
                return (
                    f"Write keras.Input((1,), ...) for the input {each.origin}, and in the input "
                    "function x[tf.newaxis]: each example then has one number in a row."
                )
        return (
            f"Give all of them {most} dimensions besides that of the examples, for example with "
            "keras.layers.Reshape or Flatten."
        )


def find_layer(error: BaseException) -> RaisingLayer | None:
    """Return the innermost layer that was being called when an error was raised."""
    operation = _class_of_operations()
    found: RaisingLayer | None = None
    if operation is None:
        return None
    is_inside = False  # a layer of Keras, whose own layers people do not know
    for frame, _ in traceback.walk_tb(error.__traceback__):
        layer = frame.f_locals.get("self")
        if "site-packages" not in frame.f_code.co_filename or _is_model(layer):
            is_inside = False
        if not isinstance(layer, operation) or _is_model(layer):
            continue
        if is_inside or frame.f_code.co_name not in ("__call__", "symbolic_call"):
            continue
        is_inside = True
        if found is None or found.layer is not layer:
            found = RaisingLayer(layer, tuple(_find_tensors(frame)))
    return found


def _describe_arguments(layer: Any) -> str:
    """Return the arguments that a layer was made with and that are not the defaults."""
    try:
        config = layer.get_config()
        parameters = inspect.signature(type(layer)).parameters.values()
    except Exception:  # of a class of the user's own
        return ""
    given = [
        f"{each.name}={config[each.name]!r}"
        for each in parameters
        if each.name in config
        and isinstance(config[each.name], bool | int | float | str | list | tuple)
        and config[each.name] != each.default
        and each.name not in ("name", "dtype", "trainable")
    ]
    return ", ".join(text for text in given[:_MAX_ARGUMENTS] if len(text) <= _MAX_SHOWN)


def _class_of_operations() -> type | None:
    keras = sys.modules.get("keras")
    return getattr(keras, "Operation", None)


def _is_model(value: object) -> bool:
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(value, keras.Model)


def _find_tensors(frame: FrameType) -> Iterator[Got]:
    given = [frame.f_locals.get(name) for name in ("args", "kwargs", "inputs")]
    for each in leaves(given):
        shape = getattr(each, "shape", None)
        if shape is None or isinstance(each, type) or not hasattr(each, "dtype"):
            continue
        sizes = tuple(shape)
        yield Got(sizes[1:], _find_maker(each), _find_origin(each))


def use_producers(producer: Producer) -> None:
    """Let messages name the layers that made tensors; the engine knows the framework's way."""
    _producers[:] = [producer]


def _find_maker(tensor: Any) -> Any:
    found = _producers[0](tensor) if _producers else None
    return None if found is None else found[0]


def _find_origin(tensor: Any) -> str:
    """Return the name of the input from which a tensor comes; empty if there are several."""
    for _ in range(_FAR):
        maker = _find_maker(tensor)
        if type(maker).__name__ == "InputLayer":
            return str(maker.name)
        try:
            tensor = maker.input
        except (AttributeError, ValueError):  # it has none yet, or several
            return ""
    return ""


def place_in_list(error: BaseException, filename: str, line: int) -> int:
    """Return the line of the layer that raised, in the list that keras.Sequential got.

    Args:
        filename: of the model file.
        line: of the statement, which begins with keras.Sequential.

    Returns:
        The same line if the error has no such list.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        names: Mapping[str, Any] = frame.f_locals
        layers = names.get("layers")
        if not _is_model(names.get("self")) or not isinstance(layers, list | tuple):
            continue
        raising = find_layer(error)
        at = next((at for at, each in enumerate(layers) if raising and each is raising.layer), None)
        if at is not None:
            return line_of_element(filename, line, at, len(layers))
    return line
