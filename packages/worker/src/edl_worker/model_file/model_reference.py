"""Which model of which zoo a job uses, as the user typed it."""

from __future__ import annotations

from dataclasses import dataclass

from edl_proto.v1 import job_pb2


@dataclass(frozen=True, slots=True)
class ModelReference:
    """Names the model zoo, the model in it, and definitions that replace the model file's own.

    The fields are those of ``edl.v1.ModelSpec``; an empty one means that the option is not given.
    """

    model_zoo: str
    model_def: str
    params: str = ""
    input_fn: str = ""
    dataset_fn: str = ""
    loss: str = ""
    optimizer: str = ""
    eval_metrics_fn: str = ""
    feature_columns: str = ""
    label_columns: str = ""

    @classmethod
    def from_spec(cls, spec: job_pb2.ModelSpec) -> ModelReference:
        return cls(
            model_zoo=spec.model_zoo,
            model_def=spec.model_def,
            params=spec.params,
            input_fn=spec.input_fn,
            dataset_fn=spec.dataset_fn,
            loss=spec.loss,
            optimizer=spec.optimizer,
            eval_metrics_fn=spec.eval_metrics_fn,
            feature_columns=spec.feature_columns,
            label_columns=spec.label_columns,
        )
