"""Orders to parameter servers, between protobuf and the core's types."""

from __future__ import annotations

from typing import assert_never

from edl_master import codec
from edl_master.core.events import HeldLease
from edl_master.core.identifiers import Version, WorkerId
from edl_master.core.parameters import orders
from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.modes import Async, Bounded, Reduction, Sync, UpdateMode
from edl_proto.v1 import job_pb2, servers_pb2, task_pb2


def order_to(order: orders.Order, number: int) -> servers_pb2.Order:
    message = servers_pb2.Order(number=number)
    match order:
        case orders.Adopt(worker):
            message.adopt = worker
        case orders.Grant(task, token):
            message.grant.CopyFrom(codec.lease_ref_to(HeldLease(task, token)))
        case orders.Revoke(task, token):
            message.revoke.CopyFrom(codec.lease_ref_to(HeldLease(task, token)))
        case orders.Close(task):
            message.close.CopyFrom(codec.task_to(task))
        case orders.Apply(task, token, minibatch, records, base_version, minibatches, squares):
            message.apply.lease.CopyFrom(codec.lease_ref_to(HeldLease(task, token)))
            message.apply.minibatch = minibatch
            message.apply.records = records
            message.apply.base_version = base_version
            message.apply.minibatches = minibatches
            message.apply.squares.extend(squares)
        case orders.Flush():
            message.flush.SetInParent()
        case orders.Finish():
            message.finish.SetInParent()
        case orders.Freeze(name):
            message.freeze = name
        case orders.Release(name):
            message.release = name
        case orders.Keep(label, place):
            message.keep.label, message.keep.place = label, place
        case _:
            assert_never(order)
    return message


def order_from(message: servers_pb2.Order) -> orders.Order:
    match message.WhichOneof("what"):
        case "adopt":
            return orders.Adopt(WorkerId(message.adopt))
        case "grant":
            held = codec.lease_from(message.grant)
            return orders.Grant(held.task, held.token)
        case "revoke":
            held = codec.lease_from(message.revoke)
            return orders.Revoke(held.task, held.token)
        case "close":
            return orders.Close(codec.task_from(message.close))
        case "apply":
            held = codec.lease_from(message.apply.lease)
            return orders.Apply(
                held.task,
                held.token,
                message.apply.minibatch,
                message.apply.records,
                Version(message.apply.base_version),
                message.apply.minibatches or 1,
                tuple(message.apply.squares),
            )
        case "flush":
            return orders.Flush()
        case "finish":
            return orders.Finish()
        case "freeze":
            return orders.Freeze(message.freeze)
        case "release":
            return orders.Release(message.release)
        case "keep":
            return orders.Keep(message.keep.label, message.keep.place)
        case other:
            raise codec.malformed(f"there is no order {other}")


def begin_to(
    job: job_pb2.JobSpec,
    model: Layout,
    optimizer_json: str,
    mode: UpdateMode,
    servers: int,
    restore_from: str,
) -> servers_pb2.Begin:
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
        case Async(local):
            if local:
                begin.local.SetInParent()
        case Bounded(max_staleness):
            begin.bounded.max_staleness = max_staleness
        case Sync(grads_to_wait, reduction):
            begin.sync.grads_to_wait = grads_to_wait
            begin.sync.reduction = reduction
    return begin


def mode_from(begin: servers_pb2.Begin) -> UpdateMode:
    match begin.WhichOneof("mode"):
        case "sync":
            return Sync(begin.sync.grads_to_wait, Reduction(begin.sync.reduction))
        case "bounded":
            return Bounded(begin.bounded.max_staleness)
        case _:
            return Async(local=begin.HasField("local"))


def model_from(begin: servers_pb2.Begin) -> Layout:
    return Layout(
        codec.variables_from(begin.model.variables), codec.tables_from(begin.model.tables)
    )
