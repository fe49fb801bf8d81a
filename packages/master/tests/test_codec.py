"""Between protobuf and the core's types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl_master import codec
from edl_master.core.effects import JobPhase
from edl_master.core.events import CallbackReply, TaskFailed, WorkerFailed
from edl_master.core.failure import Failure
from edl_master.core.identifiers import AppliedCount, TaskKey, TaskType
from edl_master.reporting import status_codec
from edl_proto import tensor
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.limits import MAX_CALLBACK_STATE_NBYTES
from edl_proto.v1 import error_pb2, job_pb2, task_pb2


@given(
    st.builds(
        TaskKey, st.sampled_from(TaskType), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
    )
)
def test_a_task_comes_back_as_it_was(task: TaskKey) -> None:
    sent = codec.task_to(task).SerializeToString()
    assert codec.task_from(task_pb2.TaskKey.FromString(sent)) == task


def test_every_phase_and_code_has_its_counterpart() -> None:
    for phase in JobPhase:
        assert job_pb2.JobState.Name(status_codec.phase_to(phase)) == phase.name
    for name, code in ErrorCode.items():
        if code:
            failure = codec.failure_of(EdlError(code, "what"))
            assert failure.code == name
            assert codec.error_to(failure).code == code


def test_a_failure_comes_back_as_it_was() -> None:
    failure = Failure("USER_CODE", "what", "where", "remedy", "detail")
    assert codec.failure_from(codec.error_to(failure)) == failure
    assert codec.error_to(Failure("NO_SUCH_CODE", "x")).code == ErrorCode.INTERNAL
    assert codec.failure_from(error_pb2.Error(what="x")).code == "INTERNAL"


def test_a_failure_shows_no_password() -> None:
    message = error_pb2.Error(what="no http://u:p@ss@host/x", where="--data http://u:p@ss@host/x")
    failure = codec.failure_from(message)
    assert (failure.what, failure.where) == ("no http://host/x", "--data http://host/x")


def test_of_a_text_without_end_the_beginning_and_the_end_are_kept() -> None:
    endless = "beginning" + "x" * 10_000_000 + "end"
    failure = codec.failure_from(error_pb2.Error(what=endless, detail=endless))
    for text in (failure.what, failure.detail):
        assert text.startswith("beginning")
        assert text.endswith("end")
        assert len(text) < 33_000
    heard = codec.heartbeat_from(task_pb2.HeartbeatRequest(stacks=endless))
    assert len(heard.stacks) < 263_000
    assert len(codec.returned_from(task_pb2.ReturnRequest(reason=endless)).reason) < 300
    ready = task_pb2.ReadyRequest(warnings=[endless, *map(str, range(1000))])
    warned = codec.ready_from(ready).warnings
    assert len(warned) == 100
    assert sum(map(len, warned)) < 34_000


def test_more_leases_than_a_worker_holds_are_refused() -> None:
    lease = task_pb2.LeaseRef(task=task_pb2.TaskKey(type=task_pb2.TRAINING), token=1)
    assert len(codec.leases_from([lease] * 1000)) == 1000
    with pytest.raises(EdlError, match="a worker names 1001 leases"):
        codec.heartbeat_from(task_pb2.HeartbeatRequest(leases=[lease] * 1001))


def test_names_without_end_are_refused() -> None:
    with pytest.raises(EdlError, match="over 256 characters"):
        codec.registered_from(task_pb2.RegisterRequest(instance="x" * 257))
    with pytest.raises(EdlError, match="over 256 characters"):
        codec.registered_from(task_pb2.RegisterRequest(host="x" * 257))
    for callbacks in (["x" * 257], ["x"] * 101):
        model = task_pb2.ModelDescription(callbacks=callbacks)
        with pytest.raises(EdlError, match="callbacks: too many"):
            codec.ready_from(task_pb2.ReadyRequest(model=model))
    for metrics in ({"x" * 257: 1.0}, {str(number): 1.0 for number in range(501)}):
        done = task_pb2.CompleteRequest(metrics=metrics)
        done.lease.task.type = task_pb2.EVALUATION_SUMMARY
        with pytest.raises(EdlError, match="metrics: too many"):
            codec.completion_from(done, None)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_a_metric_state_comes_back_as_it_was(dtype: str, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape)) % 2).reshape(shape).astype(dtype)
    sent = task_pb2.MetricState(name="auc", variables=[tensor.encode(array)])
    state = codec.metric_state_from(sent)
    assert state.variables[0].values.shape == shape
    assert codec.metric_state_to(state) == sent


def test_counts_beyond_float_precision_stay_exact() -> None:
    array = np.array([2**62 + 1, 7])
    sent = task_pb2.MetricState(name="count", variables=[tensor.encode(array)])
    assert codec.metric_state_to(codec.metric_state_from(sent)) == sent


def test_a_worker_that_may_do_better_next_time_ends_no_job() -> None:
    request = task_pb2.FailRequest(worker_id=3, instance="b", error=error_pb2.Error(what="x"))
    assert codec.failed_from(request) is None
    request.permanent = True
    assert isinstance(codec.failed_from(request), WorkerFailed)
    request.permanent = False
    request.lease.task.type = task_pb2.TRAINING
    assert isinstance(codec.failed_from(request), TaskFailed)


def test_a_tensor_that_is_none_is_refused() -> None:
    broken = task_pb2.Tensor(dtype="float32", shape=[3], content=b"1234")
    with pytest.raises(EdlError) as caught:
        codec.metric_state_from(task_pb2.MetricState(name="a", variables=[broken]))
    assert caught.value.code == ErrorCode.USAGE


def completion(**reply: Any) -> task_pb2.CompleteRequest:
    lease = task_pb2.LeaseRef(task=task_pb2.TaskKey(type=task_pb2.CALLBACKS))
    return task_pb2.CompleteRequest(lease=lease, callbacks=task_pb2.CallbackReply(**reply))


def test_what_callbacks_decide_comes_back_as_it_was() -> None:
    whole = completion(state=b"\x00x", stopped_by="EarlyStopping", learning_rate=0.0)
    assert codec.completion_from(whole, None).callbacks == CallbackReply(
        b"\x00x", "EarlyStopping", 0.0
    )
    assert codec.completion_from(completion(), None).callbacks == CallbackReply(b"")
    assert (
        codec.completion_from(task_pb2.CompleteRequest(lease=whole.lease), None).callbacks is None
    )


@pytest.mark.parametrize(
    "reply", [{"learning_rate": float("nan")}, {"state": bytes(MAX_CALLBACK_STATE_NBYTES + 1)}]
)
def test_decisions_that_make_no_sense_are_refused(reply: dict[str, Any]) -> None:
    with pytest.raises(EdlError, match="callbacks"):
        codec.completion_from(completion(**reply), None)


def test_names_of_metrics_cannot_forge_lines_of_a_log() -> None:
    request = task_pb2.CompleteRequest(metrics={"accuracy\nerror: the job failed": 1.0})
    with pytest.raises(EdlError, match="control characters"):
        codec.completion_from(request, None)


def test_the_examples_of_training_are_those_in_the_model_whichever_worker_trained_them() -> None:
    """A holder that only ends a task knows nothing of what the holder before it has trained."""
    request = task_pb2.CompleteRequest(minibatches=3, records=10, examples=0)
    request.lease.task.type = task_pb2.TRAINING
    done = codec.completion_from(request, AppliedCount(3, 10))
    assert (done.applied, done.examples) == (3, 10)
