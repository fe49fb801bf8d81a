"""Loads a model file: finds the model, adapts what the user wrote, collects all errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import keras

from edl_proto.errors import EdlError, ErrorCode
from edl_worker.core.job import ModelReference
from edl_worker.core.layer_state import LayerState
from edl_worker.engines.tensorflow.internals import compile_arguments
from edl_worker.engines.tensorflow.model import layer_arguments
from edl_worker.engines.tensorflow.model.adapters.callbacks import adapt_callbacks
from edl_worker.engines.tensorflow.model.adapters.columns import adapt_columns
from edl_worker.engines.tensorflow.model.adapters.input_function import adapt_input_function
from edl_worker.engines.tensorflow.model.adapters.keras_names import is_known_to_keras, suggest_name
from edl_worker.engines.tensorflow.model.adapters.learning_rate import (
    adapt_version_schedule,
    rate_of_callbacks,
    without_schedulers,
)
from edl_worker.engines.tensorflow.model.adapters.loss import adapt_loss
from edl_worker.engines.tensorflow.model.adapters.metrics import (
    adapt_metrics,
    add_weighted_metrics,
    no_metrics,
)
from edl_worker.engines.tensorflow.model.adapters.optimizer import (
    adapt_optimizer,
    find_refusal,
    scale_loss_as_fit,
    set_learning_rate,
)
from edl_worker.engines.tensorflow.model.called_files import CalledFiles
from edl_worker.engines.tensorflow.model.custom_steps import (
    CustomTrainStep,
    StepError,
    compile_for_steps,
    has_custom_test_step,
    has_custom_train_step,
)
from edl_worker.engines.tensorflow.model.description import ModelFileDescription
from edl_worker.engines.tensorflow.model.feature_mapping import FeatureMapper
from edl_worker.engines.tensorflow.model.ignored_arguments import note_ignored_arguments
from edl_worker.engines.tensorflow.model.layer_checks import check_layers, warn_of_keras_2
from edl_worker.engines.tensorflow.model.layer_states import LayerStates, note_states
from edl_worker.engines.tensorflow.model.model_file import ModelFile
from edl_worker.engines.tensorflow.model.opened_files import note_opened_files
from edl_worker.engines.tensorflow.model.refused_training import refuse_training
from edl_worker.engines.tensorflow.model.required_roles import (
    USED_ROLES,
    find_unused_definitions,
    missing_errors,
    not_compiled_error,
    required_roles,
)
from edl_worker.engines.tensorflow.pipelines.random_state import seed_globally
from edl_worker.model_file.adapters.outputs_processor import adapt_outputs_processor
from edl_worker.model_file.adapters.record_reader import adapt_record_reader
from edl_worker.model_file.adapters.weights import adapt_class_weight, adapt_value
from edl_worker.model_file.arguments import Definition, Role
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.errors import ContractErrors, ErrorCollector
from edl_worker.model_file.forms.model_definition import ModelDefinition
from edl_worker.model_file.params import parse_params
from edl_worker.model_file.resolver import find_definition, find_model
from edl_worker.model_file.zoo import compatibility
from edl_worker.model_file.zoo.importer import ModelZoo
from edl_worker.model_file.zoo.module_import import open_zoo
from edl_worker.model_file.zoo.outside_files import (
    OutsideFiles,
    describe_changes,
    note_outside_files,
)
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

# Role and argument of ``model.compile``.
_COMPILE_ARGUMENTS: dict[Role, str] = {
    "loss": "loss",
    "loss_weights": "loss_weights",
    "optimizer": "optimizer",
    "eval_metrics_fn": "metrics",
    "weighted_metrics": "weighted_metrics",
}


def load_model_file(
    reference: ModelReference,
    *,
    context: Mapping[str, Any] | None = None,
    purpose: Mode = Mode.TRAINING,
    seed: int | None = None,
    saved: Sequence[LayerState] = (),
    replicated: bool | None = False,
) -> ModelFile:
    """Find the model, create it with its optimizer, and check the model-file contract.

    The variables of a model have the same paths whenever it is loaded, also the second time in
    one process.

    Args:
        context: for ``ElasticDLSpec(context=...)``: ``job``, ``worker_id``, ``master``.
        purpose: what the job does; a prediction needs neither loss nor optimizer, an
            evaluation needs no optimizer.
        seed: fixes the initial values.
        saved: the state of layers as the model was trained with; none: as the file makes it.
        replicated: workers make the updates with the optimizer itself, whatever it is; None:
            ``ModelFile.decide_updates`` says later whether they do.

    Raises:
        ContractErrors: all errors that were found.
    """
    with note_ignored_arguments() as ignored:
        described = describe_model_file(
            reference,
            context=context,
            purpose=purpose,
            seed=seed,
            saved=saved,
            replicated=replicated,
        )
    return ModelFile(replace(described, warnings=(*ignored, *described.warnings)))


def describe_model_file(
    reference: ModelReference,
    *,
    context: Mapping[str, Any] | None,
    purpose: Mode,
    seed: int | None,
    saved: Sequence[LayerState] = (),
    replicated: bool | None = False,
) -> ModelFileDescription:
    """Return the strict description of a model file of any form.

    The arguments and errors are those of ``load_model_file``.
    """
    # Keras numbers the layers of each class to name variables; restart the numbers.
    keras.backend.clear_session(free_memory=False)
    compatibility.forget_warnings()
    if seed is not None:
        seed_globally(seed)
    errors = ErrorCollector()
    params = errors.attempt(parse_params, reference.params) or {}
    states = LayerStates([state for state in saved if not state.optional])
    files = OutsideFiles(reference.submitted_zoo)
    with _observe(states, files, reference):
        try:
            zoo = open_zoo(reference.model_zoo)
            model = find_model(zoo, reference.model_def)
        except EdlError as error:
            raise ContractErrors([*errors.errors, error]) from error
        definitions = _definitions(zoo, model, reference, errors)
    used = {role: d for role, d in definitions.items() if role in USED_ROLES[purpose]}
    errors.extend(undefined_names([model.code, *(d.value for d in used.values())], zoo))
    all_definitions = [*model.constructors(), *definitions.values()]
    called = CalledFiles(zoo.root, reference.submitted_zoo, saved)
    caller = DefinitionCaller(zoo.root, params, context, all_definitions, called.observe)
    errors.extend(_unknown_parameters(model, caller))
    with _observe(states, files, reference):
        keras_model = errors.attempt(model.create_model, caller)
    if keras_model is not None:
        errors.attempt(states.check_complete)
        layer_arguments.restore(keras_model, states.new_layers(), saved)
        errors.attempt(layer_arguments.check, keras_model, states.new_layers(), saved, model.place)
        errors.attempt(check_layers, keras_model, states, model.place)
        file = model.modules()[-1].__file__ or ""
        for role, definition in _compiled_definitions(keras_model, file).items():
            if role in USED_ROLES[purpose]:
                used.setdefault(role, definition)
    missing = missing_errors(model, used, required_roles(keras_model, purpose))
    if keras_model is not None and has_custom_train_step(keras_model):
        missing = [not_compiled_error(model, keras_model, error) for error in missing]
    if keras_model is None:
        errors.extend(missing)  # why there is no model comes first
    else:
        errors.prepend(missing)
    described = _describe(model, keras_model, used, caller, errors, replicated)
    found = files.read(zoo.root)
    warnings = (
        *warn_of_keras_2(described.model, model.place),
        *described.warnings,
        *files.describe(),
        *describe_changes(found, saved),
    )
    taken = (*layer_arguments.read(described.model, states.take_new_layers()), *found)
    described = replace(
        described, layer_states=states, other_states=taken, called_files=called, warnings=warnings
    )
    described = _with_custom_steps(described, purpose)
    if reference.learning_rate is not None and purpose is Mode.TRAINING:
        own = described.custom_train_step
        optimizers = own.optimizers if own is not None else [described.optimizer]
        errors.attempt(set_learning_rate, optimizers, reference.learning_rate)
        errors.raise_if_any()
    return described


@contextmanager
def _observe(states: LayerStates, files: OutsideFiles, reference: ModelReference) -> Iterator[None]:
    """Observe what the model file does besides defining things while it is loaded."""
    with (
        refuse_training(),
        note_states(states),
        note_outside_files(files, reference.model_zoo),
        note_opened_files(),
    ):
        yield


def _definitions(
    zoo: ModelZoo, model: ModelDefinition, reference: ModelReference, errors: ErrorCollector
) -> dict[Role, Definition]:
    """Return the definitions by role: the model file's own, or what an option names instead."""
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
            definition = errors.attempt(
                find_definition,
                *(zoo, model, role, option, dotted, is_known_to_keras, suggest_name),
            )
            if definition is not None:
                definitions[role] = definition
    return definitions


def _compiled_definitions(model: keras.Model, file: str) -> dict[Role, Definition]:
    """Return the definitions that a model has because the model file compiles it, by role.

    Args:
        file: the model file, for messages.
    """
    given = compile_arguments(model)
    return {
        role: Definition(role, f"compile({name}=…)", given[name], file=file)
        for role, name in _COMPILE_ARGUMENTS.items()
        if given.get(name) is not None
    }


def _modes_without_labels(model: keras.Model | None) -> frozenset[Mode]:
    """Return the modes in which the input function need not yield labels."""
    modes = {Mode.PREDICTION}
    if model is not None and has_custom_train_step(model):
        modes.add(Mode.TRAINING)
    if model is not None and has_custom_test_step(model):
        modes.add(Mode.EVALUATION)
    return frozenset(modes)


def _unknown_parameters(model: ModelDefinition, caller: DefinitionCaller) -> list[EdlError]:
    """Return errors for values of ``--params`` that nothing takes."""
    if any(constructor.has_var_keywords() for constructor in model.constructors()):
        return []  # **kwargs gets what is unclaimed, and may still refuse it
    return [caller.unknown_parameter(name) for name in caller.unclaimed_params()]


def _output_names(model: keras.Model | None) -> tuple[str, ...]:
    """Return the names of a model's outputs; empty if only a call can show them."""
    names = tuple(getattr(model, "output_names", None) or ())
    if model is not None and names and isinstance(model.output, Mapping):
        return tuple(model.output)  # Keras prefers the keys to the names of the layers
    return names


def _describe(
    model: ModelDefinition,
    keras_model: keras.Model | None,
    used: Mapping[Role, Definition],
    caller: DefinitionCaller,
    errors: ErrorCollector,
    replicated: bool | None,
) -> ModelFileDescription:
    """Return the strict description. Raises: ContractErrors: all errors that were found."""

    def adapt(role: Role, adapter: Callable[..., _Adapted], *more: Any) -> _Adapted | None:
        return errors.attempt(adapter, used[role], caller, *more) if role in used else None

    outputs = _output_names(keras_model)
    takes_any = replicated is not False
    optimizer = adapt("optimizer", partial(adapt_optimizer, replicated=takes_any))
    refused = None
    if replicated is None and optimizer is not None:
        refused = find_refusal(optimizer, used["optimizer"])
    loss_weights = adapt("loss_weights", adapt_value)
    loss = adapt("loss", adapt_loss, loss_weights, outputs)
    metrics = adapt("eval_metrics_fn", adapt_metrics, outputs) or no_metrics()
    weighted = adapt("weighted_metrics", partial(add_weighted_metrics, metrics), outputs)
    class_weight = adapt("class_weight", adapt_class_weight)
    callbacks = adapt("callbacks", adapt_callbacks)
    rate = adapt("callbacks", rate_of_callbacks, callbacks or ())
    if rate is None:
        rate = adapt("learning_rate_scheduler", adapt_version_schedule)
    if rate is not None and optimizer is not None:
        optimizer.learning_rate = rate
    if replicated and optimizer is not None and keras_model is not None:
        optimizer = scale_loss_as_fit(optimizer, keras_model)
    outputs_processor = adapt("outputs_processor", adapt_outputs_processor)
    record_reader = adapt("custom_data_reader", adapt_record_reader)
    feature_columns = adapt("feature_columns", adapt_columns)
    label_columns = adapt("label_columns", adapt_columns)
    pipeline = adapt(
        "input",
        partial(
            adapt_input_function,
            columns=(feature_columns, label_columns),
            unlabelled=_modes_without_labels(keras_model),
        ),
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
        replicated=replicated,
        refused_optimizer=refused,
        metrics=weighted or metrics,
        class_weight=class_weight or {},
        callbacks=without_schedulers(callbacks or ()),
        callbacks_place=used["callbacks"].place if "callbacks" in used else "",
        outputs_processors=() if outputs_processor is None else (outputs_processor,),
        record_readers=() if record_reader is None else (record_reader,),
        warnings=find_unused_definitions(model, used) if "optimizer" in used else (),
    )


def _with_custom_steps(description: ModelFileDescription, purpose: Mode) -> ModelFileDescription:
    """Return the description with the steps that the model defines itself, ready to run.

    Raises:
        ContractErrors: the model cannot be compiled, or its metrics are defined twice.
    """
    model, metrics = description.model, description.metrics
    trains = purpose is Mode.TRAINING and has_custom_train_step(model)
    evaluates = purpose is not Mode.PREDICTION and has_custom_test_step(model)
    if not (trains or evaluates):
        return description
    error = None
    if evaluates and metrics.is_computed:
        error = description.contract_error(
            "the model's own test_step or compute_metrics says what an evaluation measures, and "
            "so does eval_metrics_fn",
            "Leave one of them out, or give eval_metrics_fn a list of Keras metrics.",
        )
    try:
        compile_for_steps(
            model,
            {
                "optimizer": description.optimizer,
                **(description.loss.for_compile if description.loss is not None else {}),
                **metrics.for_compile,
            },
        )
    except StepError as refused:
        name = f"{type(model).__name__}.compile"
        error = description.contract_error(f"{name} {refused.what}", refused.remedy)
    if error is not None:
        raise ContractErrors([error])
    custom_train_step = CustomTrainStep(model) if trains else None
    return replace(description, custom_train_step=custom_train_step, has_custom_test_step=evaluates)
