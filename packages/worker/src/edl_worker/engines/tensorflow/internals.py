"""The private parts of TensorFlow and Keras that the worker needs.

No other module of the worker uses private parts (``tests/test_tensorflow_internals.py`` checks
this). Each function raises ``UnsupportedVersion`` where the installed version lacks a part, so
that an upgrade fails with a clear error and not with wrong results.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import keras
import tensorflow as tf

from edl_proto.errors import EdlError, ErrorCode

# The versions that the tests run with. Other ones work as long as they have the same private parts.
TENSORFLOW, KERAS = "2.21", "3.15"


class UnsupportedVersion(EdlError):
    """The installed TensorFlow or Keras lacks a private part that the worker needs."""

    def __init__(self, part: str) -> None:
        super().__init__(
            ErrorCode.INTERNAL,
            f"TensorFlow {tf.__version__} with Keras {keras.__version__} has no {part}, "
            "which the worker needs",
            where="the worker's Python environment",
            remedy="Install the versions that edl supports: "
            f"TensorFlow {TENSORFLOW} with Keras {KERAS}.",
        )


def _private(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        kind = owner if isinstance(owner, type) else type(owner)
        raise UnsupportedVersion(f"{kind.__name__}.{name}") from None


def _private_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UnsupportedVersion(f"module {name}") from None


# Keras.


def nested_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Return all layers of a model, nested ones included, in the order of their creation."""
    flatten = _private(model, "_flatten_layers")
    return list(flatten(include_self=False, recursive=True))


def embedding_variable(layer: keras.layers.Embedding) -> keras.Variable | None:
    """Return the variable of a built Embedding layer; None if the layer is quantized."""
    if layer.quantization_mode is not None:
        return None
    variable: keras.Variable = _private(layer, "_embeddings")
    return variable


def track_variable(layer: keras.layers.Layer, variable: keras.Variable) -> None:
    """Make an existing variable one of a layer's."""
    _private(layer, "_track_variable")(variable)


def keras_mask(tensor: Any) -> Any:
    """Return the mask that Keras keeps for a tensor; None if it has none."""
    return _private(_private_module("keras.src.backend"), "get_keras_mask")(tensor)


def set_keras_mask(tensor: Any, mask: Any) -> None:
    """Make Keras keep a mask for a tensor."""
    _private(_private_module("keras.src.backend"), "set_keras_mask")(tensor, mask)


def learning_rate_of(optimizer: keras.optimizers.Optimizer) -> Any:
    """Return an optimizer's learning rate: a variable, a schedule, or a function of the user."""
    return _private(optimizer, "_learning_rate")


def inner_optimizers(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """Return the optimizers that an optimizer passes its gradients to; itself if it has none."""
    inner = getattr(optimizer, "inner_optimizer", None)
    found = getattr(optimizer, "optimizers", None) or ([] if inner is None else [inner])
    return [leaf for each in found for leaf in inner_optimizers(each)] or [optimizer]


def uses_weight_decay(optimizer: keras.optimizers.Optimizer, variable: keras.Variable) -> bool:
    """Whether the optimizer's weight decay applies to a variable."""
    return bool(_private(optimizer, "_use_weight_decay")(variable))


def built_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Return the variables that an optimizer was built for."""
    return list(_private(optimizer, "_trainable_variables"))


def optimizer_slots(optimizer: keras.optimizers.Optimizer, name: str) -> Any:
    """Return what a built optimizer remembers under a name, mostly for each variable."""
    return _private(optimizer, name)


def optimizer_base_class() -> Any:
    """Return the class whose constructor gets every argument that an optimizer does not name."""
    for cls in reversed(keras.optimizers.Optimizer.__mro__):
        code = getattr(vars(cls).get("__init__"), "__code__", None)
        if code is not None and "learning_rate" in code.co_varnames:
            return cls
    raise UnsupportedVersion("base class of keras.optimizers.Optimizer")


@contextmanager
def without_default_signature() -> Iterator[None]:
    """Save models without the signature that Keras gives to each of them.

    For a subclassed model Keras takes all features for floats, so that saving fails if one is a
    string; and each model is traced once more for a signature that was not requested.
    """
    layer = _private(_private_module("keras.src.backend.tensorflow.layer"), "TFLayer")
    signature = _private(layer, "_default_save_signature")
    layer._default_save_signature = None
    try:
        yield
    finally:
        layer._default_save_signature = signature


def compiled_loss(loss: Any, loss_weights: Any, output_names: Sequence[str]) -> Callable[..., Any]:
    """Return the loss that ``model.compile(loss=..., loss_weights=...)`` would build.

    Returns:
        A function of labels, outputs and sample weights (None: all the same).
    """
    kind = _private(_private_module("keras.src.trainers.compile_utils"), "CompileLoss")
    made: Callable[..., Any] = kind(loss, loss_weights, output_names=list(output_names) or None)
    return made


def compiled_metrics(
    metrics: Any, weighted: Any, output_names: Sequence[str]
) -> keras.metrics.Metric:
    """Return the metrics that ``model.compile(metrics=..., weighted_metrics=...)`` would build.

    Returns:
        A metric whose result is a dictionary with the names that ``fit`` shows.
    """
    kind = _private(_private_module("keras.src.trainers.compile_utils"), "CompileMetrics")
    made: keras.metrics.Metric = kind(metrics, weighted, output_names=list(output_names) or None)
    return made


def metric_direction(metric: keras.metrics.Metric) -> Literal["max", "min"] | None:
    """Whether a metric should rise or fall; None if Keras does not know."""
    found = getattr(metric, "_direction", None)  # metrics that users write lack it
    return "max" if found == "up" else "min" if found == "down" else None


def compile_arguments(model: keras.Model) -> dict[str, Any]:
    """Return the arguments of ``model.compile``; empty if the model file has not called it."""
    if not model.compiled:
        return {}
    loss, metrics = _private(model, "_compile_loss"), _private(model, "_compile_metrics")
    return {
        "optimizer": model.optimizer,
        "loss": loss and _private(loss, "_user_loss"),
        "loss_weights": loss and _private(loss, "_user_loss_weights"),
        "metrics": metrics and _private(metrics, "_user_metrics"),
        "weighted_metrics": metrics and _private(metrics, "_user_weighted_metrics"),
    }


def handle_keras_tensors(handle: Callable[[Callable[..., Any], Any, Any], Any]) -> None:
    """Call a function where TensorFlow refuses Keras tensors as arguments of an operation.

    Args:
        handle: gets the operation with its arguments, positional and by name; None of it means
            that TensorFlow's error stands.
    """
    dispatch = _private_module("tensorflow.python.util.dispatch")

    class KerasTensorDispatcher(_private(dispatch, "GlobalOpDispatcher")):  # type: ignore[misc]  # found at run time
        def handle(self, op: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            given = keras.tree.flatten((args, kwargs))
            if any(isinstance(value, keras.KerasTensor) for value in given):
                result = handle(op, args, kwargs)
                if result is not None:
                    return result
            return self.NOT_SUPPORTED

    KerasTensorDispatcher().register()


def public_name(operation: Callable[..., Any]) -> str:
    """Return the public name of an operation of TensorFlow, without ``tf.``; "" if it has none."""
    exported = _private_module("tensorflow.python.util.tf_export")
    return _private(exported, "get_canonical_name_for_symbol")(operation) or ""


# AutoGraph.


def convert_with_autograph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, translated so that it may branch on tensors."""
    autograph = _private_module("tensorflow.python.autograph.core.ag_ctx")
    enabled = _private(autograph, "ControlStatusCtx")(
        status=_private(_private(autograph, "Status"), "ENABLED")
    )
    internal = _private(_private(tf, "__internal__"), "autograph")
    converted: Callable[..., Any] = _private(internal, "tf_convert")(function, enabled)
    return converted


# Traced functions.


def call_directly(function: Any, tensors: Sequence[tf.Tensor]) -> Any:
    """Return what a concrete function returns for tensors in the order of its flat arguments.

    Without this TensorFlow first finds out which tensor is which argument, for half a millisecond.
    """
    return _private(function, "_call_flat")(tensors, function.captured_inputs)


# Random numbers.


def operation_seed_state() -> object:
    """Return a value that changes when TensorFlow draws the seed of a new operation."""
    generator = _generator(_eager_context())
    return generator.getstate() if generator is not None else None


def seed_operations(seed: int) -> Callable[[], None]:
    """Set the seed of new operations, and return a function that restores the former state.

    ``tf.random.set_seed`` would also drop every compiled kernel: the next training step would
    take 18 ms longer, once per task. So this function sets only the two fields.
    """
    context = _eager_context()
    former_seed, former_generator = _private(context, "_seed"), _generator(context)

    def restore() -> None:
        current = _eager_context()
        current._seed, current._rng = former_seed, former_generator

    context._seed, context._rng = seed, random.Random(seed)
    return restore


def _eager_context() -> Any:
    return _private(_private_module("tensorflow.python.eager.context"), "context")()


def _generator(context: Any) -> random.Random | None:
    # The context has no generator before the first seed is set or drawn.
    return getattr(context, "_rng", None)


# Datasets.


def dataset_lineage(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """Return the dataset and all datasets that it was made from."""
    lineage, waiting = [], [dataset]
    while waiting:
        step = waiting.pop()
        lineage.append(step)
        waiting.extend(dataset_inputs(step))
    return lineage


def dataset_inputs(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """Return the datasets that a dataset reads."""
    return list(_private(dataset, "_inputs")())


def dataset_kind(dataset: tf.data.Dataset) -> str:
    """Return the kind of a dataset: ``Map``, ``ParallelMap``, ``Shuffle``, ``Cache``, ..."""
    return type(dataset).__name__.strip("_").removesuffix("Dataset")


def has_operation(dataset: tf.data.Dataset, name: str) -> bool:
    """Whether a function of this dataset has an operation with ``name`` in its type."""
    return any(name in operation.type for operation in _operations(dataset))


def producer(tensor: Any) -> tuple[Any, int] | None:
    """Return the layer of a functional model that made a tensor, and the output's number there."""
    history = getattr(tensor, "_keras_history", None)
    return None if history is None else (history.operation, history.tensor_index)


def consumers(tensor: Any) -> list[Any]:
    """Return the layers of functional models that got a symbolic tensor."""
    maker = producer(tensor)
    nodes = _private(maker[0], "_outbound_nodes") if maker is not None else ()
    return [node.operation for node in nodes if any(each is tensor for each in node.input_tensors)]


def has_stateful_operations(dataset: tf.data.Dataset) -> bool:
    """Whether a function of this dataset remembers anything or draws random numbers."""
    return any(operation.op_def.is_stateful for operation in _operations(dataset))


def _operations(dataset: tf.data.Dataset) -> Iterator[tf.Operation]:
    """Yield the operations in the functions of this dataset."""
    for function in _private(dataset, "_functions")():
        yield from function.function.graph.get_operations()


def is_nondeterministic(dataset: tf.data.Dataset) -> bool:
    """Whether the user asked for ``deterministic=False``."""
    # Only datasets that accept the argument have the attribute.
    return getattr(dataset, "_deterministic", None) in ("false", b"false")


def mark_nondeterministic(dataset: tf.data.Dataset) -> None:
    """Have ``is_nondeterministic`` say of a dataset that the user asked for it."""
    dataset._deterministic = "false"


def drops_remainder(dataset: tf.data.Dataset) -> bool:
    """Whether the dataset batches and leaves out a last batch that is not full."""
    given = getattr(dataset, "_drop_remainder", None)
    return given is not None and bool(tf.get_static_value(given))


def caches_to_file(dataset: tf.data.Dataset) -> bool:
    """Whether the dataset is a ``.cache(filename)``."""
    if dataset_kind(dataset) != "Cache":
        return False
    return bool(tf.get_static_value(_private(dataset, "_filename")))


@contextmanager
def dataset_functions_on_one_device() -> Iterator[None]:
    """Mark the functions of datasets as functions of a single device while the context lasts.

    TensorFlow then instantiates one without placing, optimizing and partitioning its graph.
    """
    kind = _private(
        _private_module("tensorflow.python.data.ops.structured_function"),
        "StructuredFunctionWrapper",
    )
    attributes = _private_module("tensorflow.python.eager.polymorphic_function.attributes")
    marked = {_private(attributes, "INTS_ON_DEVICE"): True}
    original = kind.__init__

    def trace(self: Any, *args: Any, **kwargs: Any) -> None:
        given = kwargs.pop("defun_kwargs", None) or {}
        original(self, *args, defun_kwargs=given | marked, **kwargs)

    kind.__init__ = trace
    try:
        yield
    finally:
        kind.__init__ = original


def mapped_function(dataset: tf.data.Dataset) -> Any | None:
    """Return the traced function of a sequential ``.map()``; None for every other dataset.

    None also where the user asked for ``synchronous=True``.
    """
    if dataset_kind(dataset) != "Map" or _private(dataset, "_force_synchronous"):
        return None
    return _private(_private(dataset, "_map_func"), "function")


def replace_map(dataset: Any, make: Callable[[Any, Any, Any, Any], Any]) -> None:
    """Give a sequential ``.map()`` other operations, without tracing its function again.

    Args:
        make: returns the variant tensor of the results from that of the dataset that is mapped, the
            traced function, and the types and the shapes of the results.
    """
    _private(dataset, "_variant_tensor_attr")
    dataset._variant_tensor_attr = make(
        _private(_private(dataset, "_input_dataset"), "_variant_tensor"),
        _private(_private(dataset, "_map_func"), "function"),
        _private(dataset, "_flat_types"),
        _private(dataset, "_flat_shapes"),
    )
