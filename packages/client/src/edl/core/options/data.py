"""Options that name the data and the results."""

from __future__ import annotations

from dataclasses import dataclass

from edl.core.options.option import TRAIN, TRAIN_OR_PREDICT, Option, declare
from edl.core.options.value_types import Choice, Integer, Names, Text, Texts


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """The options that say what a job reads and writes."""

    data: tuple[str, ...] = declare(
        Option(
            Texts(),
            "Records: a file, folder, glob or URI. Repeat the option for several.",
            '"train/*.recordio"',
            default=(),
            required=True,
            is_path=True,
            may_be_in_a_store=True,
            spec="data",
        )
    )
    validation_data: tuple[str, ...] = declare(
        Option(
            Texts(),
            "Records to evaluate the model on during training. Repeat the option for several.",
            '"test/*.recordio"',
            default=(),
            verbs=TRAIN,
            is_path=True,
            may_be_in_a_store=True,
            spec="validation_data",
        )
    )
    data_format: str = declare(
        Option(
            Choice(("recordio", "tfrecord", "csv", "parquet")),
            "Format of the data files.",
            "csv",
            default_text="by the name, else by the content",
            spec="data_format",
        )
    )
    data_cache: str = declare(
        Option(
            Text("DIR"),
            "Folder where workers keep what they read from stores, for the next epoch or job.",
            "~/.cache/edl/data",
            default_text="nothing is kept",
            is_path=True,
            spec="data_cache.folder",
        )
    )
    data_cache_size: int = declare(
        Option(
            Integer(1, 1_000_000),
            "Limit of the folder of --data-cache, in GiB.",
            "100",
            default=10,
            spec="data_cache.gibibytes",
        )
    )
    output: str = declare(
        Option(
            Text("DIR"),
            "Where to create the result: a folder or URI; for predictions also a file.",
            "my_model",
            verbs=TRAIN_OR_PREDICT,
            required=True,
            is_path=True,
            may_be_in_a_store=True,
            spec="output",
        )
    )
    export: tuple[str, ...] = declare(
        Option(
            Names("FORM,...", values=("litert", "onnx")),
            "Further forms of the trained model, beside model.keras and the SavedModel: litert for "
            "phones and small devices (model.tflite), onnx for ONNX Runtime (model.onnx; tf2onnx "
            "must be installed where the job runs).",
            "litert,onnx",
            default=(),
            default_text="none",
            verbs=TRAIN,
            spec="export_formats",
        )
    )
    minibatch_size: int = declare(
        Option(
            Integer(1, 1_000_000),
            "Number of records in one minibatch.",
            "64",
            default=32,
            spec="minibatch_size",
        )
    )
    records_per_task: int = declare(
        Option(
            Integer(0, 2**62),
            "Number of records in one task; 0 lets the master choose.",
            "4096",
            default=0,
            default_text="chosen from the data",
            spec="records_per_task",
        )
    )
