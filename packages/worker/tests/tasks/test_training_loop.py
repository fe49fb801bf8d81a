"""Training over real gRPC: what a worker does with tasks, and what the master gets of it."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import reference
from conftest import OF_TWO_TASKS, Master, Start, StartProcess, training, two_tasks
from points_jobs import drop_first_replies

from edl_proto.v1 import job_pb2, parameters_pb2, task_pb2
from edl_testing.fake_master import WAIT_S, FakeMaster
from edl_testing.fake_services import METRICS_TOKEN

Header = parameters_pb2.PushHeader


def outcomes(master: FakeMaster) -> list[int]:
    return [outcome for _, outcome in master.received.pushes]


def test_every_minibatch_is_pushed_once_and_in_order(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])
    assert start_worker(master).wait() == 0
    pushed = [
        (h.claim.lease.task.number, h.claim.minibatch, h.claim.records)
        for h, _ in master.received.pushes
    ]
    assert pushed == [
        *((0, i, 8) for i in range(5)),
        (0, 5, 4),
        *((1, i, 8) for i in range(7)),
    ]
    assert set(outcomes(master)) == {parameters_pb2.APPLIED}
    for task in master.all_tasks():
        assert task.complete is not None
        assert task.complete.minibatches == task.applied
        assert task.complete.records == sum(part.stop - part.start for part in task.lease.records)
    assert all(np.isfinite(h.step.loss) and h.step.loss > 0 for h, _ in master.received.pushes)
    assert all(h.step.compute_s > 0 for h, _ in master.received.pushes)
    assert not master.received.failed


def test_the_model_is_the_one_that_a_plain_loop_gives_moving_statistics_included(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)], rate=0.1)
    assert start_worker(master).wait() == 0
    reference.assert_close(master.by_name(), reference.train(job, two_tasks(points), rate=0.1))
    moved = [name for name in master.by_name() if "moving_mean" in name]
    assert moved
    assert np.abs(master.by_name()[moved[0]]).max() > 0


def test_the_layout_is_described_in_wire_order(
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_worker: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    master = start_master(job, [two_tasks(points)])
    assert start_worker(master).wait() == 0
    (ready,) = master.received.ready
    assert [(v.name, tuple(v.shape), v.trainable) for v in ready.model.variables] == [
        ("dense/kernel", (4, 8), True),
        ("dense/bias", (8,), True),
        ("batch_normalization/gamma", (8,), True),
        ("batch_normalization/beta", (8,), True),
        ("dense_1/kernel", (8, 3), True),
        ("dense_1/bias", (3,), True),
        ("batch_normalization/moving_mean", (8,), False),
        ("batch_normalization/moving_variance", (8,), False),
    ]
    assert ready.model.reduction == "mean"
    assert '"SGD"' in ready.model.optimizer_json
    (registered,) = master.received.registered
    assert registered.instance == ready.instance
    assert registered.environment["keras"] == metadata.version("keras")
    port = re.search(r"metrics of this worker: 127\.0\.0\.1 port (\d+)", caplog.text)
    assert port is not None
    url = f"http://127.0.0.1:{port[1]}/metrics"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, timeout=200)
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {METRICS_TOKEN}"})
    with urllib.request.urlopen(asked, timeout=200) as answer:
        assert b"edl_worker_steps_total" in answer.read()
    ready_url = url.replace("/metrics", "/readyz")
    with pytest.raises(urllib.error.HTTPError, match="503"):  # its work is over
        urllib.request.urlopen(ready_url, timeout=200)


def test_only_as_much_is_pulled_as_is_used(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])
    assert start_worker(master).wait() == 0
    assert [header.HasField("next") for header, _ in master.received.pushes] == [
        *[True] * 5, False, *[True] * 6, False,
    ]  # fmt: skip
    assert [p.HasField("have_version") for p in master.received.pulls] == [False, True]
    bases = [header.claim.base_version for header, _ in master.received.pushes]
    assert bases == list(range(13)), "each gradient is of the newest version"


def test_the_next_task_is_leased_before_the_present_one_ends(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])
    held: list[int] = []
    master.on_push = lambda m, _: held.append(sum(t.token > 0 for t in m.all_tasks()))
    assert start_worker(master, prefetch_lead_s=1e9).wait() == 0
    assert 2 in held
    beats = [len(beat.leases) for beat in master.received.heartbeats]
    assert max(beats, default=0) <= 2


def test_no_lease_is_held_in_reserve_while_much_work_is_left(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])
    held: list[int] = []
    master.on_push = lambda m, _: held.append(sum(t.token > 0 for t in m.all_tasks()))
    assert start_worker(master, prefetch_lead_s=-1.0).wait() == 0
    assert set(held) == {1}


# --- what the master may answer ----------------------------------------------------------------


def test_a_stale_gradient_is_computed_again_from_newer_parameters(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])
    answered: set[tuple[int, int]] = set()

    def stale_once(m: FakeMaster, header: Header) -> int | None:
        minibatch = header.claim.lease.task.number, header.claim.minibatch
        if minibatch in {(0, 2), (1, 6)} - answered:  # the second is the last of its task
            answered.add(minibatch)
            m.version += 1  # as if another worker's update had come in between
            m.values.view(np.float32)[0] += 0.5
            return parameters_pb2.STALE
        return None

    master.on_push = stale_once
    assert start_worker(master).wait() == 0
    assert outcomes(master).count(parameters_pb2.STALE) == 2
    assert master.received.minibatches == OF_TWO_TASKS
    for minibatch in answered:
        again = [
            header
            for header, _ in master.received.pushes
            if (header.claim.lease.task.number, header.claim.minibatch) == minibatch
        ]
        assert again[1].claim.base_version == again[0].claim.base_version + 1
        assert again[1].step.loss != again[0].step.loss, "computed from other parameters"


def test_a_task_that_was_begun_elsewhere_goes_on_where_it_was_left(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    tasks = two_tasks(points)
    master = start_master(job, [tasks])
    next(master.all_tasks()).applied = 4
    assert start_worker(master).wait() == 0
    assert master.received.minibatches == OF_TWO_TASKS[4:]
    done = next(master.all_tasks()).complete
    assert done is not None
    assert (done.minibatches, done.records) == (6, 44)

    # The minibatches that were left are those that the first holder would have computed.
    file = reference.load_model(job)
    wanted = reference.batches(file, job, tasks[0])[4:]
    losses = [h.step.loss for h, _ in master.received.pushes[:1]]
    first = file.compute_loss(file.call(wanted[0].features, training=True), wanted[0].labels)
    np.testing.assert_allclose(losses, [float(first)], rtol=1e-5)


def test_a_task_whose_minibatches_are_all_applied_is_only_completed(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])
    next(master.all_tasks()).applied = 6
    assert start_worker(master).wait() == 0
    assert master.received.minibatches == OF_TWO_TASKS[6:]
    done = next(master.all_tasks()).complete
    assert done is not None
    assert done.minibatches == 6


def test_a_zombie_drops_its_task_and_goes_on_with_another(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])

    def take_away(m: FakeMaster, header: Header) -> int | None:
        if header.claim.lease.token == 1 and header.claim.minibatch == 3:
            m.find_lease(header.claim.lease).token = 0
        return None

    master.on_push = take_away
    assert start_worker(master, prefetch_lead_s=-1.0).wait() == 0
    assert outcomes(master).count(parameters_pb2.REFUSED) == 1
    assert sorted(master.received.minibatches) == OF_TWO_TASKS
    assert not master.received.failed


def test_a_lease_that_a_heartbeat_reports_lost_is_dropped_without_a_push(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])

    tried: list[int] = []

    def lose(m: FakeMaster, header: Header) -> int | None:
        tried.append(header.claim.lease.token)
        if header.claim.lease.token == 1 and header.claim.minibatch == 2:
            m.lost.append(header.claim.lease)
            m.find_lease(header.claim.lease).token = 0
            heard = len(m.received.heartbeats)
            assert m.changed.wait_for(lambda: len(m.received.heartbeats) > heard + 1, 20)
            return parameters_pb2.STALE
        return None

    master.on_push = lose
    assert start_worker(master, prefetch_lead_s=-1.0).wait() == 0
    assert tried.count(1) == 3, "the stale minibatch was not pushed again"
    assert sorted(master.received.minibatches) == OF_TWO_TASKS


def test_a_task_that_is_out_of_step_is_handed_back(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])

    def contradict(m: FakeMaster, header: Header) -> int | None:
        return parameters_pb2.OUT_OF_ORDER if header.claim.lease.token == 1 else None

    master.on_push = contradict
    assert start_worker(master).wait() == 0
    assert [lease.token for lease in master.received.returned[0].leases] == [1]
    assert not master.received.returned[0].leaving
    assert sorted(master.received.minibatches) == OF_TWO_TASKS


def test_a_lost_answer_changes_nothing(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    master = start_master(job, [two_tasks(points)])
    drop_first_replies(master, 1)
    assert start_worker(master).wait() == 0
    assert outcomes(master).count(parameters_pb2.ALREADY_APPLIED) == 2
    assert master.received.minibatches == OF_TWO_TASKS
    reference.assert_close(master.by_name(), reference.train(job, two_tasks(points), rate=0.1))


# --- synchronous -------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_synchronous_workers_make_the_updates_of_one_large_minibatch(
    workers: int,
    job: job_pb2.JobSpec,
    points: Path,
    start_master: Master,
    start_process: StartProcess,
) -> None:
    job.training.update, job.training.grads_to_wait = job_pb2.SYNC, 2
    tasks = [training(points, 0, 40), training(points, 40, 80, number=1)]
    master = start_master(job, [tasks], grads_to_wait=2)
    # In processes: two model files cannot be open in one.
    master.workers_wanted = workers
    processes = [start_process(master.address, number) for number in range(workers)]
    assert [process.wait(WAIT_S) for process in processes] == [0] * workers
    assert outcomes(master) == [parameters_pb2.APPLIED] * 10, "no gradient is computed in vain"
    assert master.version == 5
    # A version may hold two minibatches of one task, or one of each: what was pushed says which.
    pairs = [
        (header.claim.lease.task.number, header.claim.minibatch)
        for header, _ in master.received.pushes
    ]
    if workers == 2:
        assert len({header.worker_id for header, _ in master.received.pushes}) == 2
    reference.assert_close(master.by_name(), _replay(job, tasks, pairs))


def _replay(
    job: job_pb2.JobSpec, tasks: list[task_pb2.Lease], order: list[tuple[int, int]]
) -> reference.Named:
    file = reference.load_model(job)
    made = [reference.batches(file, job, task) for task in tasks]
    for at in range(0, len(order), 2):
        reference.step(file, [made[task][index] for task, index in order[at : at + 2]], 0.1)
    return reference.weights.of_model(file.model)


def test_a_permit_is_requested_until_it_is_granted(
    job: job_pb2.JobSpec, points: Path, start_master: Master, start_worker: Start
) -> None:
    job.training.update, job.training.grads_to_wait = job_pb2.SYNC, 1
    master = start_master(job, [[training(points, 0, 40)]], grads_to_wait=1)
    master.permits.add(999)  # held by a worker that never comes back
    worker = start_worker(master, permit_wait_s=0.05)
    master.wait_for(lambda: len(master.received.pulls) > 4, "asking again")
    assert not master.received.pushes
    beats = len(master.received.heartbeats)
    master.wait_for(lambda: len(master.received.heartbeats) > beats, "heartbeats meanwhile")
    assert master.received.heartbeats[-1].phase == task_pb2.WAITING
    with master.changed:
        master.permits.clear()
        master.changed.notify_all()
    assert worker.wait() == 0
    assert outcomes(master) == [parameters_pb2.APPLIED] * 5
