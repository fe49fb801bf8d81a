"""The state that layers of Keras take from data or files while a model file is loaded.

Vocabularies, means and boundaries are no weights, or are not used as weights. They come from
``adapt``, ``set_vocabulary`` or the arguments of a layer, so that another content of a file makes
another model. This module notes each layer that gets such state, wherever the model file keeps the
layer, and gives it the state that it had when the model was trained instead.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any

import keras
import numpy as np

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.layer_state import LayerState
from edl_worker.model_file.zoo.module_loaders import find_running_line

_LOOKUPS = (keras.layers.StringLookup, keras.layers.IntegerLookup)
ADAPTED = (
    *_LOOKUPS,
    keras.layers.TextVectorization,
    keras.layers.Normalization,
    keras.layers.Discretization,
)
_OF_LAYERS = ("keras.src.layers.", "keras.src.utils.", __name__)
"""How the modules that make a layer are called, down to the line that asks for it."""


class LayerStates:
    """The layers of a model file that have such state.

    Args:
        saved: states of a trained model, which its layers get; none: they keep their own.
    """

    def __init__(self, saved: Sequence[LayerState] = ()) -> None:
        self._saved = {state.name: state for state in saved}
        self._layers: dict[int, tuple[keras.layers.Layer, str, str]] = {}
        self._counts: dict[str, int] = {}
        self._made: list[keras.layers.Layer] = []
        self._adaptable: list[tuple[keras.layers.Layer, str]] = []

    def add_layer(self, layer: keras.layers.Layer) -> None:
        """Note a layer that the model file makes, also if only ``dataset_fn`` uses it."""
        self._made.append(layer)
        if isinstance(layer, ADAPTED) and (line := find_running_line(_OF_LAYERS)) is not None:
            self._adaptable.append((layer, "{}:{}".format(*line)))

    @property
    def adaptable(self) -> tuple[tuple[keras.layers.Layer, str], ...]:
        """The layers that can take state from data, each with its file and line.

        Those that a function of a library makes for the model file are left out.
        """
        return tuple(self._adaptable)

    def new_layers(self) -> tuple[keras.layers.Layer, ...]:
        """Return the layers that were made since ``take_new_layers``, in this order."""
        return tuple(self._made)

    def take_new_layers(self) -> tuple[keras.layers.Layer, ...]:
        """Return them and keep them no longer: the model file may have dropped some."""
        made, self._made = self.new_layers(), []
        return made

    def read(self) -> tuple[LayerState, ...]:
        """Return the present states, in the order in which the layers got theirs."""
        states = (LayerState(name, place, _values(it)) for it, name, place in self._layers.values())
        return tuple(state for state in states if state.values)

    def places(self) -> list[tuple[str, str]]:
        """Return class and name of each layer, and the file and line that gave it its state."""
        return [(name, place) for _, name, place in self._layers.values()]

    def note(self, layer: keras.layers.Layer) -> Mapping[str, Any] | None:
        """Note a layer that gets state now; return the state that it is to have instead."""
        if id(layer) not in self._layers:
            name = f"{type(layer).__name__} {layer.name}"
            count = self._counts[name] = self._counts.get(name, 0) + 1
            line = find_running_line()
            place = "" if line is None else f"{PurePath(line[0]).name}:{line[1]}"
            self._layers[id(layer)] = layer, name if count == 1 else f"{name} #{count}", place
        saved = self._saved.get(self._layers[id(layer)][1])
        return None if saved is None else saved.values

    def check_complete(self) -> None:
        """Check that every saved state has found its layer.

        Raises:
            EdlError: SHAPE_MISMATCH, it names the layers that the model file does not make.
        """
        names = {name for _, name, _ in self._layers.values()}
        missing = [state for name, state in self._saved.items() if name not in names]
        if missing:
            raise EdlError(
                ErrorCode.SHAPE_MISMATCH,
                "the trained model has the state of layers that the model file does not make: "
                + ", ".join(map(str, missing)),
                where=missing[0].place,
                remedy="Use the model file and --params that the model was trained with.",
            )


_noting: LayerStates | None = None


@contextmanager
def note_states(states: LayerStates) -> Iterator[None]:
    """Note the layers that get state while the context lasts."""
    global _noting
    _change_layers()
    before, _noting = _noting, states
    try:
        yield
    finally:
        _noting = before


def _note(layer: keras.layers.Layer) -> Mapping[str, Any] | None:
    return None if _noting is None else _noting.note(layer)


def _values(layer: keras.layers.Layer) -> dict[str, Any]:
    """Return the state of a layer as numbers, texts and lists; empty if it has none yet."""
    if isinstance(layer, keras.layers.Normalization):
        if layer.input_mean is None and not layer.built:
            return {}
        own = layer.input_mean is None
        pair = (layer.adapt_mean, layer.adapt_variance) if own else _arguments(layer)
        mean, variance = (np.asarray(each, np.float64).tolist() for each in pair)
        return {"mean": mean, "variance": variance}
    if isinstance(layer, keras.layers.Discretization):
        return {"bin_boundaries": [float(each) for each in layer.bin_boundaries or ()]}
    weighted = layer.output_mode == "tf_idf"
    words = layer.get_vocabulary(include_special_tokens=weighted)
    if not words:
        return {}
    plain = str if layer.vocabulary_dtype == "string" else int
    values: dict[str, Any] = {"vocabulary": [plain(each) for each in words]}
    if weighted:
        idf = np.asarray(layer.idf_weights_const, np.float64)[: len(words)]
        values["idf_weights"] = idf.tolist()
    return values


def _arguments(layer: keras.layers.Normalization) -> tuple[Any, Any]:
    return layer.input_mean, layer.input_variance


# --- changes to the classes of Keras -----------------------------------------------------------


@functools.cache
def _change_layers() -> None:
    """Make the layers of Keras tell when they get state, once in a process."""
    _change_layer(keras.layers.Layer)
    for kind in _LOOKUPS:
        _change_lookup(kind)
    _change_normalization(keras.layers.Normalization)
    _change_discretization(keras.layers.Discretization)
    for kind in ADAPTED:
        kind.adapt = _adapt_while_loading(kind.adapt)


def _change_layer(kind: Any) -> None:
    initialize = kind.__init__

    @functools.wraps(initialize)
    def initialize_and_note(self: Any, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        if _noting is not None:
            _noting.add_layer(self)

    # Keras reads the names of the arguments.
    initialize_and_note.__signature__ = inspect.signature(initialize)  # type: ignore[attr-defined]  # of every function
    kind.__init__ = initialize_and_note


def _change_lookup(kind: Any) -> None:
    set_vocabulary, finalize = kind.set_vocabulary, kind.finalize_state

    @functools.wraps(set_vocabulary)
    def set_or_restore(self: Any, vocabulary: Any, idf_weights: Any = None) -> None:
        saved = _note(self)
        if saved is not None:
            vocabulary, idf_weights = saved["vocabulary"], saved.get("idf_weights")
        set_vocabulary(self, vocabulary, idf_weights)

    @functools.wraps(finalize)
    def finalize_or_restore(self: Any) -> None:
        saved = _note(self)
        if saved is None:
            finalize(self)
        else:
            set_vocabulary(self, saved["vocabulary"], saved.get("idf_weights"))

    kind.set_vocabulary, kind.finalize_state = set_or_restore, finalize_or_restore


def _change_normalization(kind: Any) -> None:
    initialize, finalize = kind.__init__, kind.finalize_state

    @functools.wraps(initialize)
    def initialize_or_restore(self: Any, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        if self.input_mean is not None and (saved := _note(self)) is not None:
            self.input_mean = np.asarray(saved["mean"])
            self.input_variance = np.asarray(saved["variance"])

    @functools.wraps(finalize)
    def finalize_or_restore(self: Any) -> None:
        if self.input_mean is None and self.built and (saved := _note(self)) is not None:
            self.adapt_mean.assign(saved["mean"])
            self.adapt_variance.assign(saved["variance"])
        finalize(self)

    # Keras reads the names of the arguments.
    initialize_or_restore.__signature__ = inspect.signature(initialize)  # type: ignore[attr-defined]  # of every function
    kind.__init__, kind.finalize_state = initialize_or_restore, finalize_or_restore


def _change_discretization(kind: Any) -> None:
    initialize, finalize = kind.__init__, kind.finalize_state

    @functools.wraps(initialize)
    def initialize_or_restore(self: Any, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        if self.bin_boundaries and (saved := _note(self)) is not None:
            self.bin_boundaries = list(saved["bin_boundaries"])

    @functools.wraps(finalize)
    def finalize_or_restore(self: Any) -> None:
        finalize(self)
        if self.num_bins is not None and (saved := _note(self)) is not None:
            self.bin_boundaries = list(saved["bin_boundaries"])

    # Keras reads the names of the arguments.
    initialize_or_restore.__signature__ = inspect.signature(initialize)  # type: ignore[attr-defined]  # of every function
    kind.__init__, kind.finalize_state = initialize_or_restore, finalize_or_restore


def _adapt_while_loading(adapt: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(adapt)
    def adapt_or_refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        line = find_running_line() if _noting is None else None
        if line is None:
            return adapt(self, *args, **kwargs)
        raise EdlError(
            ErrorCode.MODEL_CONTRACT,
            f"{type(self).__name__} {self.name} is adapted after the model file was loaded, to "
            "what one task or one worker sees",
            where="{}:{}".format(*line),
            remedy="Adapt the layer once, where the model file creates it, to data that every "
            "worker has; docs/model-file.md shows how.",
        )

    return adapt_or_refuse
