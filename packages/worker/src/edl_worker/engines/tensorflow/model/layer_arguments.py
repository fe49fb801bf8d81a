"""The arguments of a model file's layers, and what layers of users save beside their weights.

Both may come from a file that the model file reads, such as a scale or a list of words, so that
another content of the file makes another model.
"""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.layer_state import LayerState
from edl_worker.engines.tensorflow.internals import nested_layers
from edl_worker.engines.tensorflow.model.layer_states import ADAPTED

_NO_MEANING = frozenset(("name", "dtype", "trainable", "seed", "autocast", "function", "code"))
"""Keys that differ between two loads of a file, or between training and prediction."""
_ONLY_TRAINING = re.compile(r"rate|(\w+_)?(initializer|regularizer|constraint)")
"""Keys whose values change no prediction."""


def read(model: keras.Model, made: Sequence[keras.layers.Layer]) -> tuple[LayerState, ...]:
    """Return the arguments and the saved files of each layer that has some.

    Args:
        made: layers that the model file has made; some may be no part of the model.
    """
    return tuple(
        LayerState(name, "", values, optional=True)
        for name, layer in _layers(model, made)
        if (values := {**_arguments(layer), **_assets(layer)})
    )


def restore(
    model: keras.Model, made: Sequence[keras.layers.Layer], saved: Sequence[LayerState]
) -> None:
    """Give layers the files that they had when the model was trained; see ``read``.

    Raises:
        EdlError: CHECKPOINT_DAMAGED, a file has no plain name.
    """
    states = {state.name: state.values for state in saved}
    for name, layer in _layers(model, made):
        found = states.get(name, {}).get("assets")
        if found and found != _assets(layer).get("assets"):
            with tempfile.TemporaryDirectory() as folder:
                for path, content in found.items():
                    Path(folder, path).write_bytes(base64.b64decode(content))
                with suppress(Exception):  # of the user: check tells that the files differ
                    layer.load_assets(folder)


def check(
    model: keras.Model,
    made: Sequence[keras.layers.Layer],
    saved: Sequence[LayerState],
    place: str,
) -> None:
    """Check that layers have the arguments with which the model was trained; see ``read``.

    Raises:
        EdlError: SHAPE_MISMATCH, it names the layers, and arguments with both values.
    """
    states = {state.name: state for state in saved}
    changed = [
        difference
        for mine in read(model, made)
        if mine.name in states and (difference := _difference(mine, states[mine.name]))
    ]
    if changed:
        raise EdlError(
            ErrorCode.SHAPE_MISMATCH,
            "the model file makes other layers than those of the trained model: "
            + "; ".join(changed),
            where=place,
            remedy="Restore the data or file that the model file reads as it was when the model "
            "was trained, and use its --params. model.keras beside the trained model has the "
            "layers as they were; Keras can load it.",
        )


def _difference(mine: LayerState, trained: LayerState) -> str:
    """Return the first argument that differs, with both values; empty if none does."""
    for key in sorted(mine.values.keys() & trained.values.keys()):
        if _ONLY_TRAINING.fullmatch(key):
            continue
        one, other = (
            LayerState(mine.name, "", {key: state.values[key]}) for state in (mine, trained)
        )
        if not one.summarize().equals(other.summarize()):
            return f"{mine.name}: {key} is {_short(one, key)}, and was {_short(other, key)}"
    return ""


def _short(state: LayerState, key: str) -> str:
    text = "another file" if key == "assets" else repr(state.values[key])
    return text if len(text) <= 60 else text[:57] + "…"


def _layers(
    model: keras.Model, made: Sequence[keras.layers.Layer]
) -> Iterator[tuple[str, keras.layers.Layer]]:
    """Yield each layer that is no model and that ``LayerStates`` ignores, with a unique name."""
    counts: dict[str, int] = {}
    inner = nested_layers(model)
    known = {id(layer) for layer in inner}
    for layer in [*inner, *(it for it in made if id(it) not in known)]:
        if not isinstance(layer, (keras.Model, *ADAPTED)):
            name = f"{type(layer).__name__} {layer.name}"
            count = counts[name] = counts.get(name, 0) + 1
            yield name if count == 1 else f"{name} #{count}", layer


def _arguments(layer: keras.layers.Layer) -> dict[str, Any]:
    try:
        config = layer.get_config()
    except Exception:  # of the user, or there is none: the layer then has no known arguments
        return {}
    return {key: plain for key in config if (plain := _plain(key, config[key])) is not None}


def _plain(key: str, value: Any) -> Any:
    """Return a value of a configuration as numbers, texts and lists; None if it has no meaning."""
    if key in _NO_MEANING:
        return None
    if isinstance(value, Mapping):
        if value.get("class_name") in ("__numpy__", "__tensor__"):
            return value["config"]["value"]
        return {str(k): _plain(str(k), v) for k, v in value.items() if str(k) not in _NO_MEANING}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain("", each) for each in value]
    return value if isinstance(value, str | int | float | bool) else None


def _assets(layer: keras.layers.Layer) -> dict[str, Any]:
    """Return the files that a layer of the user saves, by name, in Base64."""
    if type(layer).__module__.startswith("keras.") or not hasattr(layer, "save_assets"):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            layer.save_assets(folder)
        except Exception:  # of the user: such a layer may have to be built before
            return {}
        files = sorted(Path(folder).iterdir())
        if not files or not all(path.is_file() for path in files):  # folders are not kept
            return {}
        encoded = {path.name: base64.b64encode(path.read_bytes()).decode() for path in files}
    return {"assets": encoded}
