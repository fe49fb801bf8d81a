"""Names that TensorFlow 2 and Keras 3 removed, with replacements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

# The optimizers of TensorFlow 1, with its parameters and defaults.


def _sgd(learning_rate: Any, use_locking: bool = False, name: str | None = None) -> Any:
    return keras.optimizers.SGD(learning_rate)


def _momentum(
    learning_rate: Any,
    momentum: float,
    use_locking: bool = False,
    name: str | None = None,
    use_nesterov: bool = False,
) -> Any:
    return keras.optimizers.SGD(learning_rate, momentum=momentum, nesterov=use_nesterov)


def _adam(
    learning_rate: Any = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    use_locking: bool = False,
    name: str | None = None,
) -> Any:
    return keras.optimizers.Adam(learning_rate, beta_1=beta1, beta_2=beta2, epsilon=epsilon)


def _adagrad(
    learning_rate: Any,
    initial_accumulator_value: float = 0.1,
    use_locking: bool = False,
    name: str | None = None,
) -> Any:
    return keras.optimizers.Adagrad(
        learning_rate, initial_accumulator_value=initial_accumulator_value
    )


def _adadelta(
    learning_rate: Any = 0.001,
    rho: float = 0.95,
    epsilon: float = 1e-8,
    use_locking: bool = False,
    name: str | None = None,
) -> Any:
    return keras.optimizers.Adadelta(learning_rate, rho=rho, epsilon=epsilon)


def _rmsprop(
    learning_rate: Any,
    decay: float = 0.9,
    momentum: float = 0.0,
    epsilon: float = 1e-10,
    use_locking: bool = False,
    centered: bool = False,
    name: str | None = None,
) -> Any:
    return keras.optimizers.RMSprop(
        learning_rate, rho=decay, momentum=momentum, epsilon=epsilon, centered=centered
    )


def _ftrl(
    learning_rate: Any,
    learning_rate_power: float = -0.5,
    initial_accumulator_value: float = 0.1,
    l1_regularization_strength: float = 0.0,
    l2_regularization_strength: float = 0.0,
    use_locking: bool = False,
    name: str | None = None,
) -> Any:
    return keras.optimizers.Ftrl(
        learning_rate,
        learning_rate_power=learning_rate_power,
        initial_accumulator_value=initial_accumulator_value,
        l1_regularization_strength=l1_regularization_strength,
        l2_regularization_strength=l2_regularization_strength,
    )


# Name in tf.train to a replacement and what to write instead.
OPTIMIZERS: dict[str, tuple[Callable[..., Any], str]] = {
    "GradientDescentOptimizer": (_sgd, "tf.keras.optimizers.SGD"),
    "MomentumOptimizer": (_momentum, "tf.keras.optimizers.SGD(..., momentum=...)"),
    "AdamOptimizer": (_adam, "tf.keras.optimizers.Adam"),
    "AdagradOptimizer": (_adagrad, "tf.keras.optimizers.Adagrad"),
    "AdadeltaOptimizer": (_adadelta, "tf.keras.optimizers.Adadelta"),
    "RMSPropOptimizer": (_rmsprop, "tf.keras.optimizers.RMSprop"),
    "FtrlOptimizer": (_ftrl, "tf.keras.optimizers.Ftrl"),
}

# Name in tf to the same function's present name.
MOVED: dict[str, str] = {
    "log": "tf.math.log",
    "div": "tf.math.divide",
    "ceil": "tf.math.ceil",
    "random_normal": "tf.random.normal",
    "random_uniform": "tf.random.uniform",
    "decode_raw": "tf.io.decode_raw",
    "parse_single_example": "tf.io.parse_single_example",
    "parse_example": "tf.io.parse_example",
    "FixedLenFeature": "tf.io.FixedLenFeature",
    "VarLenFeature": "tf.io.VarLenFeature",
    "string_to_number": "tf.strings.to_number",
    "sparse_tensor_to_dense": "tf.sparse.to_dense",
}

# tf.keras has only the short names of these functions, keras only the long ones.
LONG_NAMES = (
    "kl_divergence",
    "log_cosh",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
)

# Name in tf to a replacement and what to write instead.
CASTS: dict[str, tuple[Callable[..., Any], str]] = {
    "to_float": (lambda x, name=None: tf.cast(x, tf.float32), "tf.cast(x, tf.float32)"),
    "to_int32": (lambda x, name=None: tf.cast(x, tf.int32), "tf.cast(x, tf.int32)"),
    "to_int64": (lambda x, name=None: tf.cast(x, tf.int64), "tf.cast(x, tf.int64)"),
}

# Global names that examples in the design documents use without importing them: value and what to
# write instead.
GLOBALS: dict[str, tuple[Any, str]] = {
    "EagerTensor": (type(tf.constant(0)), "tf.Tensor"),
}
