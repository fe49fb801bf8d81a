"""From a choice to a loaded model file, or to everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2
from edl_worker.model_file.arguments import Definition
from edl_worker.model_file.definition_caller import (
    DefinitionCaller,
    check_params,
    constructors,
    create_model,
)
from edl_worker.model_file.definitions import (
    read_column_list,
    read_eval_metrics,
    read_input,
    read_loss,
    read_optimizer,
)
from edl_worker.model_file.errors import ContractErrors, ErrorCollector
from edl_worker.model_file.feature_mapping import FeatureMapper
from edl_worker.model_file.model_file import ModelFile, ModelFileDescription
from edl_worker.model_file.model_options import ModelOptions
from edl_worker.model_file.params import parse_params
from edl_worker.model_file.random_state import seed_globally
from edl_worker.model_file.zoo import compatibility
from edl_worker.model_file.zoo.resolver import default_parts, find_model, open_zoo, override
from edl_worker.model_file.zoo.undefined_names import undefined_names
from elasticdl.python.common.constants import Mode

# Option -> role.
_OVERRIDES = {
    "input_fn": "input",
    "dataset_fn": "input",
    "loss": "loss",
    "optimizer": "optimizer",
    "eval_metrics_fn": "eval_metrics_fn",
    "feature_columns": "feature_columns",
    "label_columns": "label_columns",
}

_NEEDED = {
    Mode.TRAINING: ("input", "loss", "optimizer"),
    Mode.EVALUATION: ("input", "loss"),
    Mode.PREDICTION: ("input",),
}

# Role -> what is missing, an example, the option that names one elsewhere.
_HOW_TO = {
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
    choice: ModelOptions,
    *,
    context: Mapping[str, Any] | None = None,
    purpose: Mode = Mode.TRAINING,
    seed: int | None = None,
) -> ModelFile:
    """Finds the model, creates it with its optimizer and checks the contract.

    Variables of a model have the same paths whenever it is loaded, also twice in a process.

    Args:
        context: for ``ElasticDLSpec(context=...)``: ``job``, ``worker_id``, ``master``.
        purpose: what the job does; a prediction needs neither loss nor optimizer, an
            evaluation no optimizer.
        seed: fixes the initial values.

    Raises:
        ContractErrors: all errors found.
    """
    # Keras counts layers by class to name variables: start from nothing each time.
    keras.backend.clear_session(free_memory=False)
    compatibility.forget_warnings()
    if seed is not None:
        seed_globally(seed)
    findings = ErrorCollector()
    params: Mapping[str, Any] = {}
    try:
        params = parse_params(choice.params)
    except EdlError as error:
        findings.add(error)
    try:
        zoo = open_zoo(choice.model_zoo)
        found = find_model(zoo, choice.model_def)
    except EdlError as error:
        raise ContractErrors([*findings.errors, error]) from error
    return _put_together(DefinitionCaller(zoo, found, params, context, findings), choice, purpose)


def _put_together(bench: DefinitionCaller, choice: ModelOptions, purpose: Mode) -> ModelFile:
    findings, found = bench.findings, bench.found
    parts = _parts(bench, choice)
    needed = {role: part for role, part in parts.items() if _is_used(role, purpose)}
    _require(bench, needed, purpose)
    model_type = type(found.value) if found.form == "instance" else found.value
    findings.extend(
        undefined_names([model_type, *(part.value for part in needed.values())], bench.zoo)
    )
    makers, others = constructors(found), list(parts.values())
    check_params(bench, makers, others)
    model = create_model(bench, makers, others)

    optimizer = read_optimizer(needed["optimizer"], bench) if "optimizer" in needed else None
    loss, reduction = read_loss(needed["loss"], bench) if "loss" in needed else (None, None)
    metrics, per_batch = (
        read_eval_metrics(needed["eval_metrics_fn"], bench)
        if "eval_metrics_fn" in needed
        else ({}, None)
    )
    features = read_column_list(needed.get("feature_columns"), bench)
    labels = read_column_list(needed.get("label_columns"), bench)
    pipeline = read_input(needed["input"], bench, features, labels) if "input" in needed else None
    findings.raise_if_any()
    assert model is not None, "create_model says why it made none"
    return ModelFile(
        ModelFileDescription(
            root=bench.zoo.root,
            form=found.form,
            where=found.where,
            model=model,
            optimizer=optimizer,
            pipeline=pipeline,
            feeder=FeatureMapper(model, features, found.where),
            loss=loss,
            loss_reduction=reduction,
            metrics=metrics,
            per_batch_metrics=per_batch,
        )
    )


def _parts(bench: DefinitionCaller, choice: ModelOptions) -> dict[str, Definition]:
    """The parts by role: the model file's own, or what an option names instead."""
    parts = default_parts(bench.found)
    if choice.input_fn and choice.dataset_fn:
        bench.findings.add(
            EdlError(
                error_pb2.USAGE,
                "--input-fn and --dataset-fn are both given",
                where=f"--input-fn {choice.input_fn}, --dataset-fn {choice.dataset_fn}",
                remedy="Give one of them.",
            )
        )
    for name, role in _OVERRIDES.items():
        dotted = getattr(choice, name)
        if dotted:
            option = f"--{name.replace('_', '-')}"
            try:
                parts[role] = override(bench.zoo, bench.found, option, dotted)
            except EdlError as error:
                bench.findings.add(error)
    return parts


def _is_used(role: str, purpose: Mode) -> bool:
    match role:
        case "optimizer":
            return purpose == Mode.TRAINING
        case "loss" | "eval_metrics_fn":
            return purpose != Mode.PREDICTION
        case _:
            return True


def _require(bench: DefinitionCaller, parts: Mapping[str, Definition], purpose: Mode) -> None:
    for role in _NEEDED[purpose]:
        if role in parts:
            continue
        wanted, example, option = _HOW_TO[role]
        bench.findings.add(
            EdlError(
                error_pb2.MODEL_CONTRACT,
                f"the model file has no {wanted}",
                where=f"{bench.found.module.__file__}",
                remedy=f"Add one (`{example}`), or name one of another module with {option}.",
            )
        )
