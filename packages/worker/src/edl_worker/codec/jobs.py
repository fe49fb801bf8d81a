"""Jobs, models and admissions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from edl_proto import fields
from edl_proto.errors import EdlError
from edl_proto.job_spec import check_complete, require
from edl_proto.v1 import job_pb2, model_pb2, task_pb2
from edl_worker.core.job import (
    DataCacheSettings,
    JobDescription,
    JobType,
    ModelReference,
    PredictionSettings,
    TrainingSettings,
    WirePrecision,
)
from edl_worker.core.model_description import ModelDescription, TrainedModelDescription
from edl_worker.core.registration import JobAdmission, Registration, ShardAddress
from edl_worker.core.tasks import (
    TaskType,
)

_JOB_TYPES = {job_pb2.JobType.Value(one.name): one for one in JobType}
_TASK_TYPES = {task_pb2.TaskType.Value(one.name): one for one in TaskType}
_PRECISIONS = {job_pb2.WirePrecision.Value(one.name): one for one in WirePrecision}


def decode_job(spec: job_pb2.JobSpec) -> JobDescription:
    """Return the part of a job that concerns its workers."""
    training = spec.training
    return JobDescription(
        name=spec.name,
        type=_JOB_TYPES[spec.type],
        model=decode_model_reference(spec.model),
        data=tuple(spec.data),
        data_format=spec.data_format,
        output=spec.output,
        trained_model=spec.trained_model,
        minibatch_size=spec.minibatch_size,
        training=TrainingSettings(
            seed=training.seed,
            sync=training.update == job_pb2.SYNC,
            overlap=training.overlap,
            local_steps=training.local_steps,
            precision=decode_precision(training.wire_precision),
            embedding_threshold=training.embedding_threshold,
            init_from=training.init_from,
            epochs=training.num_epochs,
            validates=bool(spec.validation_data),
            profile=(training.profile.first, training.profile.last)
            if training.HasField("profile")
            else None,
            shuffle=training.shuffle,
            replicated=None
            if training.update == job_pb2.AUTO
            else training.update == job_pb2.REPLICATED,
            reduction=training.gradient_reduction,
        ),
        prediction=PredictionSettings(tuple(spec.prediction.keep), spec.prediction.postprocess),
        data_cache=DataCacheSettings(spec.data_cache.folder, spec.data_cache.gibibytes),
        image=spec.image,
        grace_s=spec.worker_grace_s,
        exported_job=spec.export.job,
        export_formats=tuple(spec.export_formats),
    )


def decode_registration(reply: task_pb2.RegisterReply) -> Registration:
    """Return the master's answer to a worker that registers.

    Raises:
        EdlError: USAGE, the job's specification is incomplete.
    """
    check_complete(reply.job)
    return Registration(
        replace(decode_job(reply.job), columns=tuple(reply.columns), sample=tuple(reply.sample)),
        reply.heartbeat_every_s,
        reply.metrics_token,
        open_metrics=reply.job.serving.metrics_auth == "none",
    )


def decode_admission(reply: task_pb2.ReadyReply) -> JobAdmission:
    """Return the admission of a worker to the job."""
    shards = tuple(fields.decode(ShardAddress, server) for server in reply.servers)
    return fields.decode(JobAdmission, reply, shards=shards)


def parse_job(text: str) -> JobDescription:
    """Return a job from its JobSpec as JSON.

    Raises:
        ValueError: the text is not a JobSpec.
        EdlError: USAGE, it has no type of job; or names data, and not how large a
            minibatch is.
    """
    spec = job_pb2.JobSpec()
    try:
        json_format.Parse(text, spec)
    except json_format.ParseError as error:
        raise ValueError(str(error)) from error
    require(spec, ["type", "minibatch_size"] if spec.data else ["type"])
    return decode_job(spec)


def error_as_json(error: EdlError) -> dict[str, Any]:
    """Return an ``edl.v1.Error`` in the form of JSON."""
    return json_format.MessageToDict(error.to_proto(), preserving_proto_field_name=True)


def decode_model_reference(spec: job_pb2.ModelSpec) -> ModelReference:
    """Return the place of the model file, and its parameters."""
    code = spec.code
    options: dict[str, Any] = {n: getattr(spec, n, "") for n in ModelReference.__slots__}
    options.update(copies=code.copies, code_sha256=code.sha256)
    if not spec.HasField("learning_rate"):
        options["learning_rate"] = None
    if code.copies:
        options["model_zoo"] = code.copies + code.folder
    return ModelReference(**options)


def decode_precision(precision: job_pb2.WirePrecision.ValueType) -> WirePrecision:
    """Return the precision of numbers on the wire."""
    return _PRECISIONS[precision]


def encode_precision(precision: WirePrecision) -> job_pb2.WirePrecision.ValueType:
    """Return the precision of numbers on the wire, as a message."""
    return job_pb2.WirePrecision.Value(precision.name)


def encode_model(model: ModelDescription) -> task_pb2.ModelDescription:
    """Return what the master needs to know about the model."""
    return fields.encode(
        task_pb2.ModelDescription,
        model,
        variables=[fields.encode(task_pb2.Variable, one) for one in model.variables],
        tables=[fields.encode(task_pb2.EmbeddingTable, one) for one in model.tables],
        layer_states=[fields.encode(task_pb2.LayerState, one) for one in model.layer_states],
    )


def encode_trained_model(model: TrainedModelDescription) -> bytes:
    """Return the content of a ``trained_model.pb``."""
    return fields.encode(model_pb2.TrainedModel, model).SerializeToString()


def decode_trained_model(content: bytes) -> TrainedModelDescription:
    """Return the description in a ``trained_model.pb``.

    Raises:
        ValueError: the content is damaged.
    """
    try:
        message = model_pb2.TrainedModel.FromString(content)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    return fields.decode(TrainedModelDescription, message)
