"""What a name that does not exist is meant to be: the nearest one, or where Keras now has it."""

from __future__ import annotations

import difflib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

_MAX_KEYS, _MIN_BEGINNING, _MAX_NEAR = 40, 4, 2
_OTHER_NAMES = {"xavier": "glorot", "kaiming": "he", "crossentropy": "categorical"}
"""What others call things whose names begin so in Keras."""
INIT_FIRST = "Begin __init__ of the class with super().__init__(), before it sets attributes."

_CHOICES = re.compile(
    r"(?:one of|policies include|values are|layers are):? ?[\[({]?"
    r"((?:['\"]\w+['\"](?:,? (?:and|or) |, )?)+)"
)

_EAGER = "TensorFlow 2 computes at once: call functions and layers directly."
_LAYERS = "Use layers, which create their own variables: keras.layers.Dense(8)."
_PREPROCESSING = (
    "Use layers such as keras.layers.RandomFlip in the model; edl data convert FOLDER makes "
    "records of a folder of images."
)
_WORKERS = "Leave it out: edl train --num-workers N trains on several workers."
_REMOVED = {
    "estimator": "Compare mode with Mode.TRAINING, of elasticdl.python.common.constants; build the "
    "model with Keras.",
    "placeholder": "Begin the model with keras.Input(shape); the input function yields the values.",
    "Session": _EAGER,
    "ConfigProto": _EAGER,
    "get_session": _EAGER,
    "set_session": _EAGER,
    "global_variables_initializer": _EAGER,
    "get_variable": _LAYERS,
    "variable_scope": _LAYERS,
    "enable_eager_execution": _EAGER,
    "disable_v2_behavior": _EAGER,
    "exponential_decay": "Give the optimizer keras.optimizers.schedules.ExponentialDecay(...).",
    "experimental": "Leave experimental out: keras.layers.Rescaling, "
    "keras.mixed_precision.set_global_policy and others have left it.",
    "contrib": "Look for the same in keras.layers, keras.losses and keras.optimizers.",
    "Tokenizer": "keras.layers.TextVectorization does this: adapt it to the texts, and keep its "
    "vocabulary in a file of the zoo.",
    "ImageDataGenerator": _PREPROCESSING,
    "DenseFeatures": "Make a keras.Input for each feature, and join them with "
    "keras.layers.concatenate; StringLookup and CategoryEncoding encode texts.",
    "CuDNNLSTM": "keras.layers.LSTM uses cuDNN by itself.",
    "CuDNNGRU": "keras.layers.GRU uses cuDNN by itself.",
    "multi_gpu_model": _WORKERS,
    "KerasClassifier": "Return the Keras model itself: edl trains it.",
    "KerasRegressor": "Return the Keras model itself: edl trains it.",
    "np_utils": "Use keras.utils.to_categorical.",
}
"""What to use for what TensorFlow 2 and Keras 3 no longer have."""

_METHODS = {
    "add": "Only keras.Sequential has add: in a functional model, call the next layer: "
    "x = layer(x).",
    "pop": "Only keras.Sequential has pop: make another model of an earlier output, "
    "keras.Model(model.input, model.layers[-2].output).",
    "minimize": "Compute the gradients with tf.GradientTape, and end with "
    "self.optimizer.apply(gradients, variables).",
    "get_gradients": "Compute the gradients with tf.GradientTape.",
    "fit_generator": "A job trains the model: leave this call out.",
    "predict_classes": "edl predict --postprocess argmax gives the classes.",
}
"""What to use for methods that Keras 3 no longer has."""

_PLACES = (
    *("keras.ops", "keras.layers", "keras.losses", "keras.metrics", "keras.optimizers"),
    *("keras.optimizers.schedules", "keras.callbacks", "keras.utils", "keras.activations"),
    *("keras.initializers", "keras.regularizers", "keras.models", "keras.random", "keras"),
)
_TENSORFLOW_PLACES = (
    *("tensorflow", "tensorflow.math", "tensorflow.io", "tensorflow.strings", "tensorflow.image"),
    *("tensorflow.nn", "tensorflow.random"),
)
"""Modules that have what other modules once had."""


def replacement_of(module: str, name: str) -> str:
    """Return what to use instead of what TensorFlow or Keras has removed; empty if not known."""
    package = module.partition(".")[0]
    if package not in ("tensorflow", "keras"):
        return ""
    if name == "layers":
        return _LAYERS
    if name in _REMOVED:
        return _REMOVED[name]
    places = [*_PLACES, *_TENSORFLOW_PLACES]
    if package == "tensorflow" and ".keras" not in module:
        places = [*_TENSORFLOW_PLACES, *_PLACES]
    for place in places:
        if place != module and callable(getattr(_find_module(place), name, None)):
            return f"Use {place.replace('tensorflow', 'tf')}.{name}: {module} has none."
    return ""


def explain_missing_module(error: ModuleNotFoundError, line: str) -> str:
    """Return what to do about a module that an installed package does not have.

    It is empty if the package itself is missing.

    Args:
        line: of the model file that imports it.
    """
    top, _, rest = (error.name or "").partition(".")
    package = sys.modules.get(top)
    if package is None or not rest:
        return ""
    imported = re.search(r"\bimport\s+\(?\s*([\w, ]+)", line.partition("#")[0])
    names = re.findall(r"(\w+)(?: as \w+)?", imported.group(1)) if imported else []
    for name in (*names, *reversed(rest.split("."))):
        if replacement := replacement_of(error.name or "", name):
            return replacement
    version = getattr(package, "__version__", "")
    return f"Import what replaced it: {top} {version} is installed, and has no {error.name}."


def _find_module(dotted: str) -> Any:
    """Return a module of an imported package; None if there is none."""
    top, *rest = dotted.split(".")
    found: Any = sys.modules.get(top)
    for name in rest:
        found = getattr(found, name, None)
    return found


def find_attribute(error: BaseException, message: str) -> str | None:
    """Return a suggestion for a name that a module or an object does not have."""
    owner = getattr(error, "obj", None)
    # AutoGraph raises the exception anew, without its object.
    if match := re.search(r"(?:Symbolic|Eager)Tensor'? object has no attribute '(\w+)'", message):
        return _of_tensors(match.group(1))
    if match := re.match(r"module '([\w.]+)' has no attribute '(\w+)'", message):
        module, name = _public_name(match.group(1)), match.group(2)
        near = did_you_mean(name, dir(_find_module(module)))
        return replacement_of(module, name) or near
    if not (match := re.match(r"'(\w+)' object has no attribute '(\w+)'", message)):
        return None
    kind, name = match.groups()
    # Keras raises some errors anew, too.
    owner = owner if owner is not None else _find_self(error, kind)
    if owner is None:
        return None
    if _is_unfinished(owner, name):
        return INIT_FIRST
    if name in _METHODS and str(type(owner).__module__).startswith("keras."):
        return _METHODS[name]
    if name.startswith("_"):  # a library's own
        return None
    near = did_you_mean(name, [each for each in dir(owner) if not each.startswith("_")])
    layers = sys.modules.get("keras.layers")
    is_of_keras = type(owner).__module__.startswith("keras.")
    if near is None and layers and isinstance(owner, layers.Layer) and not is_of_keras:
        return (
            f"Create it in __init__, such as self.{name} = keras.layers.Dense(8), or in "
            f"build: self.{name} = self.add_weight(shape=..., name={name!r})."
        )
    return near


def _find_self(error: BaseException, kind: str) -> Any:
    """Return the object of a class whose method raised an error; None if there is none."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        if type(found := frame.f_locals.get("self")).__name__ == kind:
            return found
    return None


def _public_name(module: str) -> str:
    """Return the name under which people know a module of Keras or TensorFlow."""
    return re.sub(r"^(keras|tensorflow)\.(?:_?api\.)?(?:_?v2\.|src\.)?", r"\1.", module)


def _is_unfinished(owner: object, name: str) -> bool:
    """Whether a layer lacks what each layer has: its class does not call that of Keras."""
    layers = sys.modules.get("keras.layers")
    return layers is not None and isinstance(owner, layers.Layer) and hasattr(layers.Layer(), name)


def _of_tensors(name: str) -> str | None:
    """Return what to use instead of a method of texts or arrays, which tensors do not have."""
    if name in dir(str):
        return (
            "A record is a tensor, and not a text of Python: tf.io.decode_csv(row, record_defaults)"
            " splits a row of CSV, and tf.strings has split, strip, lower and others."
        )
    if name in ("astype", "reshape", "mean", "sum", "max", "min", "flatten", "transpose", "T"):
        return (
            "Use a function of TensorFlow: tf.cast(x, dtype), tf.reshape(x, shape), "
            "tf.reduce_mean(x), tf.transpose(x)."
        )
    return None


def find_import(error: BaseException, message: str) -> str | None:
    """Return a suggestion for a name that a module does not have."""
    match = re.search(r"cannot import name '(\w+)' from '([\w.]+)'", message)
    if not isinstance(error, ImportError) or match is None:
        return None
    name, module = match.group(1), sys.modules.get(match.group(2))
    near = did_you_mean(name, [] if module is None else dir(module))
    return replacement_of(_public_name(match.group(2)), name) or near


def find_identifier(error: BaseException, message: str) -> str | None:
    """Return what an activation, an initializer, a regularizer, … may be, instead of a value."""
    match = re.search(r"Could not interpret (\w+?)(?: function)? identifier: (.+)", message)
    module = sys.modules.get(f"keras.{match.group(1)}s") if match else None
    if match is None or module is None:
        return None
    kind, given = match.group(1), match.group(2).rstrip(".")
    names = list(_made_by(module, kind))
    if near := did_you_mean(given.strip("'\""), dir(module)):
        return near
    article = "an" if kind[0] in "aeiou" else "a"
    made = {"regularizer": "L2", "initializer": "Constant"}.get(kind)
    if made and re.fullmatch(r"[\d.e+-]+", given):
        return f"Write {article} {kind} of this value: keras.{kind}s.{made}({given})."
    return f"Give {article} {kind} of keras.{kind}s, or its name: {', '.join(names)}."


def _made_by(module: ModuleType, kind: str) -> Iterator[str]:
    """Yield the classes of a module of Keras, or its functions if it has none."""
    found = {name: value for name, value in vars(module).items() if callable(value)}
    classes = [
        name for name, value in found.items() if inspect.isclass(value) and name[0].isupper()
    ]
    names = classes or [name for name in found if name not in ("get", "serialize", "deserialize")]
    yield from sorted(name for name in names if name.lower() != kind and not name.startswith("_"))


def find_method(error: BaseException, message: str) -> str | None:
    """Return how to write a method that Keras calls with other arguments."""
    match = re.match(r"(\w+)\.(\w+)\(\) (?:takes|missing|got an unexpected)", message)
    keras = sys.modules.get("keras")
    if match is None or keras is None or match.group(2).startswith("__"):
        return None
    kind, name = match.groups()
    bases = (keras.Model, keras.layers.Layer, keras.metrics.Metric, keras.losses.Loss)
    owner = _find_self(error, kind)
    for base in (*bases, keras.callbacks.Callback):
        # The name may be that of a class of Keras, which the file calls wrongly.
        is_own = owner is None or not type(owner).__module__.startswith("keras.")
        if is_own and not hasattr(keras, kind) and callable(method := getattr(base, name, None)):
            return f"Keras calls it: write def {name}{inspect.signature(method)}."
    return None


def find_keyword(error: BaseException, message: str) -> str | None:
    """Return a suggestion for a keyword that a layer or an optimizer of Keras does not take."""
    call = re.search(
        r"(\w+)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'", message
    )
    if call is not None:
        made = _find_callable(call.group(1), error)
        return _choose_parameter(call.group(2), made) if made is not None else None
    match = re.search(
        r"(?:keyword arguments passed to \w+|Argument\(s\) not recognized): \{'(\w+)'", message
    )
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)]
    owner = next((each["self"] for each in reversed(frames) if "self" in each), None)
    if match is None or owner is None:
        return None
    return _choose_parameter(match.group(1), type(owner))


def _find_callable(name: str, error: BaseException) -> Any:
    """Return the class or function of Keras, or of the file that calls it, with a name."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        if callable(found := frame.f_locals.get(name, frame.f_globals.get(name))):
            return found
    found = [getattr(_find_module(place), name, None) for place in (*_PLACES, "keras.Model")]
    return next((each for each in found if callable(each)), None)


def _choose_parameter(given: str, owner: Any) -> str:
    """Return which parameter is meant, or all that there are."""
    if given == "batch_input_shape" or given == "input_shape":
        return "Begin the model with keras.Input(shape), without the dimension of the examples."
    models = _find_module("keras.Model")
    if models is not None and owner is models:
        return "Write keras.Model(inputs=..., outputs=...)."
    try:
        parameters = inspect.signature(owner).parameters
    except (TypeError, ValueError):
        return f"Leave {given} out."
    names = [name for name in parameters if name not in ("self", "args", "kwargs")]
    near = did_you_mean(given, [name for name in names if not name.endswith(f"_{given}")])
    return near or f"It takes {', '.join(names) or 'no arguments'}."


def find_key(error: BaseException, message: str) -> str | None:
    """Return which keys the dictionary has that lacks one."""
    if not isinstance(error, KeyError):
        return None
    told = re.search(r"the record has no feature '(.*?)'; it has", message)
    key = told.group(1) if told else message.strip("'\"")
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        for name, value in frame.f_locals.items():
            if not isinstance(value, dict) or key in value or not 0 < len(value) <= _MAX_KEYS:
                continue
            if name.startswith("_") or not all(isinstance(each, str) for each in value):
                continue
            near = did_you_mean(key.strip(), list(value))
            if told:  # which has said what the record has
                return near or "Name a column or feature that the record has."
            return f"{near or ''} {name} has {', '.join(value)}.".lstrip()
    return None


def find_choice(error: BaseException, message: str) -> str | None:
    """Return which of the values that a message lists is meant."""
    match = _CHOICES.search(message)
    if match is None:
        return None
    known = re.findall(r"\w+", re.sub(r" (?:and|or) ", " ", match.group(1)))
    given = re.search(r"(?:Cannot convert '|No such layer: |Received:? (?:\w+=)?'?)(\w+)", message)
    near = did_you_mean(given.group(1), known) if given else None
    return near or f"Use one of {', '.join(known)}."


FINDERS: tuple[Callable[[BaseException, str], str | None], ...] = (
    *(find_attribute, find_import, find_identifier, find_keyword, find_key, find_choice),
)
"""Each returns a suggestion for a name, or None if the exception is about none."""


def did_you_mean(name: str, known: list[str]) -> str | None:
    """Return "Did you mean …?" with the names that are nearest to another; None: none is near."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(
        name.lower(), by_lower, n=1, cutoff=0.93
    ) or difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=0.75)
    if not near and len(name) >= _MIN_BEGINNING:
        known_as = _OTHER_NAMES.get(name.lower(), name.lower())
        near = [each for each in by_lower if each.startswith(known_as)][:_MAX_NEAR]
    return f"Did you mean {' or '.join(by_lower[each] for each in near)}?" if near else None
