"""Decides which definitions of a model file a job uses, and which it cannot do without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import keras

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.engines.tensorflow.model.custom_steps import (
    has_custom_test_step,
    has_custom_train_step,
)
from edl_worker.model_file.arguments import Definition, Role
from edl_worker.model_file.forms.model_definition import (
    OPTIONAL_ROLES,
    ModelDefinition,
    similar_name,
)
from edl_worker.model_file.source_lines import find_unused_names
from elasticdl.python.common.constants import Mode

# The roles that a job uses, and those of them that it cannot do without.
USED_ROLES: dict[Mode, tuple[Role, ...]] = {
    Mode.TRAINING: (
        *("input", "feature_columns", "label_columns"),
        *("loss", "loss_weights", "eval_metrics_fn", "weighted_metrics"),
        *("optimizer", "class_weight", "callbacks", "learning_rate_scheduler"),
        "custom_data_reader",
    ),
    Mode.EVALUATION: (
        *("input", "feature_columns", "label_columns"),
        *("loss", "loss_weights", "eval_metrics_fn", "weighted_metrics"),
        "custom_data_reader",
    ),
    Mode.PREDICTION: (
        *("input", "feature_columns", "label_columns"),
        *("outputs_processor", "custom_data_reader"),
    ),
}
_REQUIRED_ROLES: dict[Mode, tuple[Role, ...]] = {
    Mode.TRAINING: ("input", "loss", "optimizer"),
    Mode.EVALUATION: ("input", "loss"),
    Mode.PREDICTION: ("input",),
}

# Role to what is missing, an example, and the options that name one elsewhere.
_MISSING: dict[Role, tuple[str, str, str]] = {
    "input": (
        "dataset_fn(dataset, mode) or input_fn(records)",
        "def dataset_fn(dataset, mode): return dataset.map(parse)",
        "--dataset-fn or --input-fn",
    ),
    "loss": (
        "loss(labels, predictions)",
        "def loss(labels, predictions): return tf.reduce_mean(...)",
        "--loss",
    ),
    "optimizer": (
        "optimizer()",
        "def optimizer(lr=0.1): return tf.keras.optimizers.SGD(lr)",
        "--optimizer",
    ),
}


def required_roles(model: keras.Model | None, purpose: Mode) -> tuple[Role, ...]:
    """Return the roles that a job cannot do without; a model's own steps may do without loss."""
    needed = _REQUIRED_ROLES[purpose]
    if model is None:
        return ("input",)  # the model might have been compiled
    if purpose is Mode.TRAINING and has_custom_train_step(model):
        return ("input",) if model.compiled else ("input", "optimizer")
    if purpose is Mode.EVALUATION and has_custom_test_step(model):
        return ("input",)
    return needed


def missing_errors(
    model: ModelDefinition, used: Mapping[Role, Definition], needed: tuple[Role, ...]
) -> list[EdlError]:
    """Return the errors for roles that a job needs and the model file lacks."""
    errors = []
    for role in needed:
        if role not in used:
            wanted, example, option = _MISSING[role]
            errors.append(
                EdlError(
                    ErrorCode.MODEL_CONTRACT,
                    f"the model file has no {wanted}",
                    where=f"{model.module.__file__}",
                    remedy=_suggest_name(model, role)
                    or f"Add one (`{example}`), or name one of another module with {option}.",
                )
            )
    return errors


def find_unused_definitions(
    model: ModelDefinition, used: Mapping[Role, Definition]
) -> tuple[str, ...]:
    """Return warnings of what is defined under a name like one that edl looks for."""
    return tuple(
        f"{model.module.__file__}:{line}: {name} is not used; did you mean {wanted}?"
        for role in OPTIONAL_ROLES
        if role not in used
        for name, line, wanted in _find_similar(model, role)
    )


def _suggest_name(model: ModelDefinition, role: Role) -> str | None:
    """Return the remedy for a definition under another name; None if there is none like it."""
    for name, line, wanted in _find_similar(model, role):
        return f"Did you mean {wanted}? Line {line} defines {name}, which edl does not use."
    return None


def _find_similar(model: ModelDefinition, role: Role) -> Iterator[tuple[str, int, str]]:
    """Yield name, line and probable name of unused definitions that may be meant for a role."""
    for name, line in find_unused_names(model.module.__file__ or "").items():
        wanted = similar_name(role, name)
        if wanted is not None and name != model.name:
            yield name, line, wanted


def not_compiled_error(
    model: ModelDefinition, keras_model: keras.Model, missing: EdlError
) -> EdlError:
    """Return the error for a missing optimizer, though the model has some for its own step."""
    own = [
        name
        for name, value in vars(keras_model).items()
        if isinstance(value, keras.optimizers.Optimizer) and not name.startswith("_")
    ]
    if not own or _MISSING["optimizer"][0] not in missing.what:
        return missing
    return EdlError(
        ErrorCode.MODEL_CONTRACT,
        f"the model has its own optimizers ({', '.join(own)}), but it is not compiled, and the "
        "model file has no optimizer()",
        where=model.place,
        remedy=f"End the model's __init__ with self.compile(optimizer=self.{own[0]}); train_step "
        "uses its own optimizers as before.",
    )
