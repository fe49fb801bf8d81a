"""Loads a model file: finds the model, adapts what the user wrote, collects all errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import keras

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.job import ModelReference
from edl_worker.model_file.adapters.columns import adapt_columns
from edl_worker.model_file.adapters.input_function import adapt_input_function
from edl_worker.model_file.adapters.loss import adapt_loss
from edl_worker.model_file.adapters.metrics import adapt_metrics, no_metrics
from edl_worker.model_file.adapters.optimizer import adapt_optimizer
from edl_worker.model_file.arguments import Definition, Role
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.description import ModelFileDescription
from edl_worker.model_file.errors import ContractErrors, ErrorCollector
from edl_worker.model_file.feature_mapping import FeatureMapper
from edl_worker.model_file.forms.model_definition import ModelDefinition
from edl_worker.model_file.model_file import ModelFile
from edl_worker.model_file.params import parse_params
from edl_worker.model_file.random_state import seed_globally
from edl_worker.model_file.resolver import find_definition, find_model
from edl_worker.model_file.zoo import compatibility
from edl_worker.model_file.zoo.importer import ModelZoo
from edl_worker.model_file.zoo.module_import import open_zoo
from edl_worker.model_file.zoo.undefined_names import undefined_names
from elasticdl.python.common.constants import Mode

_Adapted = TypeVar("_Adapted")

# Field of ModelReference, to the role that it replaces.
_REPLACING_OPTIONS: dict[str, Role] = {
    "input_fn": "input",
    "dataset_fn": "input",
    "loss": "loss",
    "optimizer": "optimizer",
    "eval_metrics_fn": "eval_metrics_fn",
    "feature_columns": "feature_columns",
    "label_columns": "label_columns",
}

# The roles that a job uses, and those of them that it cannot do without.
_USED: dict[Mode, tuple[Role, ...]] = {
    Mode.TRAINING: (
        *("input", "feature_columns", "label_columns"),
        *("loss", "eval_metrics_fn", "optimizer"),
    ),
    Mode.EVALUATION: ("input", "feature_columns", "label_columns", "loss", "eval_metrics_fn"),
    Mode.PREDICTION: ("input", "feature_columns", "label_columns"),
}
_REQUIRED: dict[Mode, tuple[Role, ...]] = {
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


def load_model_file(
    reference: ModelReference,
    *,
    context: Mapping[str, Any] | None = None,
    purpose: Mode = Mode.TRAINING,
    seed: int | None = None,
) -> ModelFile:
    """Finds the model, creates it with its optimizer, and checks the model-file contract.

    The variables of a model have the same paths whenever it is loaded, also the second time in
    one process.

    Args:
        context: for ``ElasticDLSpec(context=...)``: ``job``, ``worker_id``, ``master``.
        purpose: what the job does; a prediction needs neither loss nor optimizer, an
            evaluation needs no optimizer.
        seed: fixes the initial values.

    Raises:
        ContractErrors: all errors that were found.
    """
    return ModelFile(describe_model_file(reference, context=context, purpose=purpose, seed=seed))


def describe_model_file(
    reference: ModelReference,
    *,
    context: Mapping[str, Any] | None,
    purpose: Mode,
    seed: int | None,
) -> ModelFileDescription:
    """The strict description of a model file of any form.

    The arguments and errors are those of ``load_model_file``.
    """
    # Keras numbers the layers of each class to name variables; restart the numbers.
    keras.backend.clear_session(free_memory=False)
    compatibility.forget_warnings()
    if seed is not None:
        seed_globally(seed)
    errors = ErrorCollector()
    params = errors.attempt(parse_params, reference.params) or {}
    try:
        zoo = open_zoo(reference.model_zoo)
        model = find_model(zoo, reference.model_def)
    except EdlError as error:
        raise ContractErrors([*errors.errors, error]) from error
    definitions = _definitions(zoo, model, reference, errors)
    used = {role: d for role, d in definitions.items() if role in _USED[purpose]}
    errors.extend(_missing(model, used, purpose))
    errors.extend(undefined_names([model.code, *(d.value for d in used.values())], zoo))
    all_definitions = [*model.constructors(), *definitions.values()]
    caller = DefinitionCaller(zoo.root, params, context, all_definitions)
    errors.extend(_unknown_parameters(model, caller))
    return _describe(model, used, caller, errors)


def _definitions(
    zoo: ModelZoo, model: ModelDefinition, reference: ModelReference, errors: ErrorCollector
) -> dict[Role, Definition]:
    """The definitions by role: the model file's own, or what an option names instead."""
    definitions = model.definitions()
    if reference.input_fn and reference.dataset_fn:
        errors.add(
            EdlError(
                ErrorCode.USAGE,
                "--input-fn and --dataset-fn are both given",
                where=f"--input-fn {reference.input_fn}, --dataset-fn {reference.dataset_fn}",
                remedy="Give one of them.",
            )
        )
    for name, role in _REPLACING_OPTIONS.items():
        dotted = getattr(reference, name)
        if dotted:
            option = f"--{name.replace('_', '-')}"
            definition = errors.attempt(find_definition, zoo, model, role, option, dotted)
            if definition is not None:
                definitions[role] = definition
    return definitions


def _missing(
    model: ModelDefinition, used: Mapping[Role, Definition], purpose: Mode
) -> list[EdlError]:
    errors = []
    for role in _REQUIRED[purpose]:
        if role not in used:
            wanted, example, option = _MISSING[role]
            errors.append(
                EdlError(
                    ErrorCode.MODEL_CONTRACT,
                    f"the model file has no {wanted}",
                    where=f"{model.module.__file__}",
                    remedy=f"Add one (`{example}`), or name one of another module with {option}.",
                )
            )
    return errors


def _unknown_parameters(model: ModelDefinition, caller: DefinitionCaller) -> list[EdlError]:
    """Errors for values of ``--params`` that nothing takes."""
    if any(constructor.has_var_keywords() for constructor in model.constructors()):
        return []  # **kwargs gets what is unclaimed, and may still refuse it
    return [caller.unknown_parameter(name) for name in caller.unclaimed_params()]


def _describe(
    model: ModelDefinition,
    used: Mapping[Role, Definition],
    caller: DefinitionCaller,
    errors: ErrorCollector,
) -> ModelFileDescription:
    """The strict description.

    Raises:
        ContractErrors: all errors that were found.
    """

    def adapted(
        role: Role, adapter: Callable[[Definition, DefinitionCaller], _Adapted]
    ) -> _Adapted | None:
        return errors.attempt(adapter, used[role], caller) if role in used else None

    keras_model = errors.attempt(model.create_model, caller)
    optimizer = adapted("optimizer", adapt_optimizer)
    loss = adapted("loss", adapt_loss)
    metrics = adapted("eval_metrics_fn", adapt_metrics) or no_metrics()
    feature_columns = adapted("feature_columns", adapt_columns)
    label_columns = adapted("label_columns", adapt_columns)
    pipeline = adapted(
        "input", partial(adapt_input_function, columns=(feature_columns, label_columns))
    )
    errors.raise_if_any()
    assert keras_model is not None, "an error says why there is no model"
    assert pipeline is not None, "an error says why there is no pipeline"
    return ModelFileDescription(
        zoo_root=caller.zoo_root,
        form=model.form,
        place=model.place,
        model=keras_model,
        feature_mapper=FeatureMapper(keras_model, feature_columns, model.place),
        input_pipeline=pipeline,
        loss=loss,
        optimizer=optimizer,
        metrics=metrics,
    )
