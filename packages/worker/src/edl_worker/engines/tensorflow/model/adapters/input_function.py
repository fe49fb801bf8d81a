"""Input functions: of a dataset (``dataset_fn``, ``feed``) or of records (``input_fn``)."""

from __future__ import annotations

from typing import Literal

from edl_worker.engines.tensorflow.pipelines.columns import Column
from edl_worker.engines.tensorflow.pipelines.dataset_pipeline import DatasetPipeline
from edl_worker.engines.tensorflow.pipelines.records_pipeline import RecordsPipeline
from edl_worker.model_file.arguments import PARAMETER_NAMES, Definition, bind
from edl_worker.model_file.definition_caller import DefinitionCaller
from edl_worker.model_file.errors import type_with_article
from edl_worker.model_file.input_pipeline import InputPipeline
from elasticdl.python.common.constants import Mode


def adapt_input_function(
    definition: Definition,
    caller: DefinitionCaller,
    columns: tuple[tuple[Column, ...] | None, tuple[Column, ...] | None],
    unlabelled: frozenset[Mode],
) -> InputPipeline:
    """Return the pipeline that runs an input function.

    Args:
        columns: feature columns and label columns; None if the model file has none.
        unlabelled: the modes in which it need not yield labels.

    Raises:
        EdlError: MODEL_CONTRACT.
    """
    if not callable(definition.value):
        raise definition.error(
            f"is {type_with_article(definition.value)}, not a function",
            "Write dataset_fn(dataset, mode) or input_fn(records).",
        )
    function = caller.function(definition)
    if input_kind(definition) == "dataset":
        of_dataset = bind(
            definition,
            function,
            required=("dataset",),
            optional=("mode", "metadata"),
            params=caller.params,
            by_position=True,
        )
        return DatasetPipeline(of_dataset, caller.zoo_root, unlabelled, caller.observe)
    of_records = bind(
        definition,
        function,
        required=("records",),
        optional=("mode",),
        params=caller.params,
        by_position=True,
    )
    return RecordsPipeline(of_records, caller.zoo_root, *columns, unlabelled)


def input_kind(definition: Definition) -> Literal["dataset", "records"]:
    """Whether an input function takes a ``tf.data`` dataset or a list of records."""
    names = list(definition.parameters())
    if any(name in PARAMETER_NAMES["dataset"] for name in names):
        return "dataset"
    if any(name in PARAMETER_NAMES["records"] for name in names):
        return "records"
    # The parameters' names say nothing. The function's own name comes next, then the number of
    # required parameters: a second one is the mode.
    if definition.name.endswith(("dataset_fn", "create_dataset", "feed")):
        return "dataset"
    if definition.name.endswith("input_fn"):
        return "records"
    return "dataset" if len(definition.required_names()) > 1 else "records"
