"""Settings, the command line, and what threads share."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import ZOO

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, task_pb2
from edl_worker import config
from edl_worker.app import identity
from edl_worker.concurrency.shared_state import Departure, LeavingError, SharedState
from edl_worker.metrics import WorkerMetrics
from edl_worker.tasks.lookahead import Lookahead


def ref(token: int) -> task_pb2.LeaseRef:
    return task_pb2.LeaseRef(task=task_pb2.TaskKey(number=token), token=token)


def test_settings_come_from_the_environment() -> None:
    environ = {"EDL_MASTER_WAIT_S": "2.5", "EDL_METRICS_PORT": "9100", "EDL_LOG_LEVEL": "debug"}
    settings = config.from_environment("h:1", 3, environ)
    assert (settings.master, settings.worker_id) == ("h:1", 3)
    assert (settings.master_wait_s, settings.metrics_port) == (2.5, 9100)
    assert settings.log_level == "DEBUG"
    assert config.from_environment("h:1", 3, {}) == config.Settings("h:1", 3)


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_setting_without_sense_is_refused_by_name(text: str) -> None:
    with pytest.raises(EdlError) as caught:
        config.from_environment("h:1", 0, {"EDL_MASTER_WAIT_S": text})
    assert caught.value.code == error_pb2.USAGE
    assert "EDL_MASTER_WAIT_S" in caught.value.what
    assert text in caught.value.what


@pytest.mark.parametrize("arguments", [[], ["--master", "h:1"], ["--worker-id", "x"], ["chek"]])
def test_a_wrong_command_line_ends_with_2(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "edl_worker", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr


@pytest.mark.parametrize(("model_def", "code"), [("points", 0), ("pints", 1)])
def test_the_check_prints_one_json_object(model_def: str, code: int, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"model": {"model_zoo": str(ZOO), "model_def": model_def}}))
    command = [sys.executable, "-m", "edl_worker", "check", "--spec", str(spec)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    answer = json.loads(done.stdout)
    assert answer["ok"] == (code == 0)
    assert done.returncode == code, done.stderr


def test_the_identity_names_this_process_and_no_later_one() -> None:
    who = identity(4)
    assert (who.worker_id, who.instance) == (4, identity(4).instance)
    host, pid, started = who.instance.rsplit(":", 2)
    assert (host, int(pid)) == (who.host, who.pid)
    assert float(started) > 0


def test_leases_are_held_lost_and_released() -> None:
    state = SharedState()
    for token in (1, 2):
        state.hold(ref(token))
    state.lose([ref(2), ref(3)])
    assert [lease.token for lease in state.leases()] == [1]
    assert state.is_lost(ref(2))
    assert not state.is_lost(ref(3)), "never held"
    state.release(ref(2))
    assert not state.is_lost(ref(2))
    state.release_all()
    assert state.leases() == []


def test_the_first_reason_to_leave_counts() -> None:
    state = SharedState()
    state.check()
    assert state.leave(Departure("preempted"))
    error = EdlError(error_pb2.MASTER_LOST, "gone")
    assert not state.leave(Departure("master-lost", error))
    assert state.departure is not None
    assert (state.departure.reason, state.departure.exit_code) == ("preempted", 0)
    with pytest.raises(LeavingError):
        state.check()


def test_a_sleep_ends_when_the_worker_has_to_leave() -> None:
    state = SharedState()
    state.sleep(0.01)
    threading.Timer(0.05, lambda: state.leave(Departure("preempted"))).start()
    started = time.monotonic()
    with pytest.raises(LeavingError):
        state.sleep(100)
    assert time.monotonic() - started < 50


def test_counters_are_named_as_prometheus_writes_them() -> None:
    metrics = WorkerMetrics()
    metrics.steps.inc(3)
    metrics.compute_s.observe(0.5)
    metrics.task_ended(task_pb2.TRAINING, "completed", 64)
    counters = metrics.counters()
    assert counters["edl_worker_steps_total"] == 3
    assert counters['edl_worker_records_total{type="training"}'] == 64
    assert counters['edl_worker_tasks_total{outcome="completed",type="training"}'] == 1
    assert counters['edl_worker_step_duration_seconds_sum{phase="compute"}'] == 0.5
    assert not any("_bucket" in name or "_created" in name for name in counters)
    assert "compute 500.00 ms" in metrics.step_summary()


def test_metrics_are_served_on_a_free_port() -> None:
    import urllib.request

    metrics = WorkerMetrics()
    metrics.steps.inc()
    port = metrics.serve("127.0.0.1", 0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        assert b"edl_worker_steps_total 1.0" in answer.read()


def test_a_lookahead_knows_whether_it_goes_on() -> None:
    ahead = Lookahead(iter([1, 2]))
    assert ahead.take() == 1
    assert ahead.more()
    assert ahead.take() == 2
    assert not ahead.more()
    assert ahead.take() is None


def test_a_lookahead_raises_what_its_source_raises_and_closes_it() -> None:
    closed: list[bool] = []

    def numbers():  # type: ignore[no-untyped-def]
        try:
            yield 1
            raise ValueError("two is missing")
        finally:
            closed.append(True)

    ahead = Lookahead(numbers())
    assert ahead.take() == 1
    with pytest.raises(ValueError, match="two is missing"):
        ahead.more()
    early = Lookahead(numbers())
    assert early.more()
    early.close()
    assert early.take() is None
    assert closed == [True, True]
