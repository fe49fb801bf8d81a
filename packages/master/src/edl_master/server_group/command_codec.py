"""Commands to parameter servers, between protobuf and the core's types."""

from __future__ import annotations

from typing import assert_never

from edl_master import codec
from edl_master.core.identifiers import HeldLease, Version, WorkerId
from edl_master.core.parameters import commands
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.modes import Async, Bounded, Reduction, Replicated, Sync, UpdateMode
from edl_proto.v1 import job_pb2, servers_pb2, task_pb2


def command_to(  # noqa: C901, PLR0912  (one case for each command)
    command: commands.Command, index: int
) -> servers_pb2.CommandEntry:
    """Convert a command to the entry of the command log at ``index``."""
    message = servers_pb2.CommandEntry(index=index)
    match command:
        case commands.CommitInitialValues(worker):
            message.commit_initial_values = worker
        case commands.CommitPush():
            push = message.commit_push
            lease = HeldLease(command.task, command.token)
            push.lease.CopyFrom(codec.lease_ref_to(lease))
            push.minibatch = command.minibatch
            push.records = command.records
            push.version = command.version
            push.minibatches = command.minibatches
            push.squares.extend(command.squares)
            if command.worker is not None:
                push.worker = command.worker
        case commands.FlushAccumulated(version):
            message.flush_accumulated = version
        case commands.SetLearningRate(rate):
            message.set_learning_rate = rate
        case commands.ReplaceValues():
            raise ValueError("parameter servers take no part in replicated training")
        case commands.KeepBestValues():
            message.keep_best.SetInParent()
        case commands.RestoreBestValues(version):
            message.restore_best = version
        case commands.FinishTraining(version):
            message.finish_training = version
        case commands.FreezeVersion(name):
            message.freeze_version = name
        case commands.ReleaseVersion(name):
            message.release_version = name
        case commands.TakeSnapshot(label, place):
            message.take_snapshot.label, message.take_snapshot.place = label, place
        case _:
            assert_never(command)
    return message


def command_from(  # noqa: C901  (one case for each command)
    message: servers_pb2.CommandEntry,
) -> commands.Command:
    """Convert an entry of the command log to its command.

    Raises:
        EdlError: USAGE; the command is unknown or malformed.
    """
    match message.WhichOneof("command"):
        case "commit_initial_values":
            return commands.CommitInitialValues(WorkerId(message.commit_initial_values))
        case "commit_push":
            push = message.commit_push
            held = codec.lease_from(push.lease)
            return commands.CommitPush(
                held.task,
                held.token,
                push.minibatch,
                push.records,
                Version(push.version),
                push.minibatches or 1,
                tuple(push.squares),
                WorkerId(push.worker) if push.HasField("worker") else None,
            )
        case "flush_accumulated":
            return commands.FlushAccumulated(Version(message.flush_accumulated))
        case "set_learning_rate":
            return commands.SetLearningRate(message.set_learning_rate)
        case "keep_best":
            return commands.KeepBestValues()
        case "restore_best":
            return commands.RestoreBestValues(Version(message.restore_best))
        case "finish_training":
            return commands.FinishTraining(Version(message.finish_training))
        case "freeze_version":
            return commands.FreezeVersion(message.freeze_version)
        case "release_version":
            return commands.ReleaseVersion(message.release_version)
        case "take_snapshot":
            return commands.TakeSnapshot(message.take_snapshot.label, message.take_snapshot.place)
        case other:
            raise codec.malformed_message(f"unknown command {other}")


def begin_to(
    job: job_pb2.JobSpec,
    model: Layout,
    optimizer_json: str,
    mode: UpdateMode,
    servers: int,
    restore_from: str,
) -> servers_pb2.Begin:
    """Return the first message to a parameter server: the job, its model and all the servers."""
    begin = servers_pb2.Begin(
        job=job,
        model=task_pb2.ModelDescription(
            variables=[
                task_pb2.Variable(name=v.name, shape=v.shape, dtype=v.dtype, trainable=v.trainable)
                for v in model.variables
            ],
            optimizer_json=optimizer_json,
            tables=[
                task_pb2.EmbeddingTable(
                    name=table.name,
                    dim=table.dim,
                    distribution=table.initial.distribution,
                    center=table.initial.center,
                    spread=table.initial.spread,
                    seed=table.seed,
                    min_count=table.min_count,
                    max_age=table.max_age,
                )
                for table in model.tables
            ],
        ),
        servers=servers,
        restore_from=restore_from,
    )
    match mode:
        case Async(local_steps):
            if local_steps > 1:
                begin.local_steps = local_steps
        case Bounded(max_staleness):
            begin.bounded.max_staleness = max_staleness
        case Sync(grads_to_wait, reduction):
            begin.sync.grads_to_wait = grads_to_wait
            begin.sync.reduction = reduction
        case Replicated():
            raise ValueError("parameter servers take no part in replicated training")
    return begin


def mode_from(begin: servers_pb2.Begin) -> UpdateMode:
    """Return how the servers apply updates."""
    match begin.WhichOneof("mode"):
        case "sync":
            return Sync(begin.sync.grads_to_wait, Reduction(begin.sync.reduction))
        case "bounded":
            return Bounded(begin.bounded.max_staleness)
        case _:
            return Async(begin.local_steps or 1)


def model_from(begin: servers_pb2.Begin) -> Layout:
    """Return the dense variables and embedding tables of the model."""
    return Layout(
        codec.variables_from(begin.model.variables), codec.tables_from(begin.model.tables)
    )
