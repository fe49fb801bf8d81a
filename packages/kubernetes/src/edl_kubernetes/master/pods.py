"""The platform of a Kubernetes cluster: every instance is a pod that the job's Job owns.

One thread follows the pods of the job: it lists them, watches from there, and lists again whenever
the watch ends. What counts is the difference between a list and what this object knows, so a missed
event changes nothing. A second thread creates and deletes pods, at a limited rate.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edl_kubernetes.cluster import objects
from edl_kubernetes.cluster.api import ApiError, ApiUnavailable, JsonObject, KubernetesApi
from edl_kubernetes.master import pod_record, pod_status
from edl_kubernetes.master.api_retry import retry_until_answered
from edl_kubernetes.master.pod_logs import LogsOfPods, PodInspector
from edl_kubernetes.master.pod_record import FIRST_RETRY_S, PodRecord, Request, readable_end
from edl_kubernetes.master.pod_removal import PodRemoval
from edl_kubernetes.master.pod_status import PodEnd, StartProblem
from edl_kubernetes.master.pod_template import PodTemplate
from edl_master.adapters.observations import ObservationQueue
from edl_master.core.events import InstanceExited, InstanceNotStarted, InstancePending
from edl_master.core.identifiers import InstanceId, WorkerId
from edl_master.core.platform import InstanceStarted, LiveInstance, Observation

log = logging.getLogger(__name__)

_WATCH_S = 240
"""Length of one watch; then the pods are listed again."""

_CREATED_PER_S = 10.0
_MAX_RETRY_S = 60.0
_LOST_MARGIN_S = 15.0
"""How long after its grace period a pod that is being deleted counts as lost with its node."""

_CLOSE_MARGIN_S = 30.0
_FORCE = 1
"""The shortest grace period, in seconds. 0 frees the name while the process may still run."""


class KubernetesPods:
    """Instances as pods; see ``core.platform.Platform`` for the promises.

    Args:
        api: of the cluster.
        template: the job's pods.
        command: the command line of a worker's instances, by worker.
        job_dir: directory of the job; gets the logs of pods that have ended.
    """

    def __init__(
        self,
        api: KubernetesApi,
        template: PodTemplate,
        command: Callable[[WorkerId], Sequence[str]],
        job_dir: Path,
    ) -> None:
        self._api = api
        self._template = template
        self._command = command
        self._pods_path = f"/api/v1/namespaces/{template.namespace}/pods"
        self._logs = LogsOfPods.of_job(api, self._pods_path, job_dir, template.role)
        self._observations = ObservationQueue()
        self._following = threading.Lock()
        """Held, before ``_changed``, while states of pods are read and compared: ``adopt`` and the
        thread that follows the pods must not see them in different orders."""
        self._changed = threading.Condition()
        self._pods: dict[InstanceId, PodRecord] = {}  # guarded by _changed, as all below
        self._requests: list[Request] = []
        self._closed = False
        self._over = threading.Event()
        self._removal = PodRemoval(api, self._pods_path, self._over)
        self._ends = ThreadPoolExecutor(4, thread_name_prefix="pod-ends")
        self._inspector = PodInspector(self._logs, self._observations.put, self._over)
        threading.Thread(target=self._follow_pods, name="follow-pods", daemon=True).start()
        threading.Thread(target=self._send_requests, name="pod-requests", daemon=True).start()

    # --- the port --------------------------------------------------------------------------

    def start(self, worker: WorkerId, attempt: int) -> None:
        with self._changed:
            if self._closed:
                self._observations.put(InstanceNotStarted(worker, "the platform is closed"))
                return
            suffix = f"{attempt}-{secrets.token_hex(4)}"
            name = objects.pod_name(self._template.job, self._template.role, worker, suffix)
            pod = self._pods[InstanceId(name)] = PodRecord(worker, attempt, InstanceId(name))
            self._observations.put(InstancePending(worker, "Creating"))
            self._request(pod)

    def inspect(self, worker: WorkerId) -> None:
        with self._changed:
            for pod in self._pods.values():
                if pod.worker == worker and pod.is_started and not (pod.is_ending or self._closed):
                    self._inspector.inspect(pod)

    def stop(self, worker: WorkerId, grace_s: float) -> None:
        with self._changed:
            for pod in self._pods.values():
                if pod.worker == worker:
                    self._ask(pod, grace_s)

    def kill(self, worker: WorkerId) -> None:
        self.stop(worker, 0)

    def observe(self, timeout_s: float) -> tuple[Observation, ...]:
        return self._observations.take(timeout_s)

    def adopt(self) -> tuple[LiveInstance, ...]:
        selector = self._template.selector
        with self._following:  # else an end could be seen before its pod is known here
            listing = retry_until_answered(
                lambda: self._api.list(self._pods_path, selector), "finding the pods of the job"
            )
            return tuple(self._adopt(listing.items))

    def _adopt(self, items: Sequence[JsonObject]) -> Iterator[LiveInstance]:
        with self._changed:
            for item in items:
                instance = InstanceId(item["metadata"]["name"])
                if instance in self._pods:
                    continue
                pod = pod_record.decode_pod(item)
                if pod_status.is_at_work(item, objects.CONTAINER) and pod.worker >= 0:
                    pod.is_started = True
                    self._pods[instance] = pod
                    yield LiveInstance(pod.worker, pod.attempt, instance)
                else:
                    # It has ended, waits for a place, or belongs to no worker: the new master
                    # decides what it needs. A worker may run there still, and returns its tasks.
                    self._ends.submit(self._removal.remove, pod, None)

    def close(self, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s + _CLOSE_MARGIN_S
        with self._changed:
            for pod in self._pods.values():
                self._ask(pod, grace_s)
            already, self._closed = self._closed, True
            while self._pods and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            for pod in self._pods.values():
                log.error("worker %d: pod %s has not ended", pod.worker, pod.instance)
            self._over.set()
            self._changed.notify_all()
        if not already:
            self._inspector.close()
            self._ends.shutdown(wait=False)
            self._observations.close()

    # --- creation and deletion -------------------------------------------------------------

    def _ask(self, pod: PodRecord, grace_s: float) -> None:
        """Request the deletion of a pod; a later request can only shorten the grace period."""
        pod.is_asked = True
        wanted = max(_FORCE, math.ceil(grace_s))
        if pod.grace_s is None or wanted < pod.grace_s:
            pod.grace_s = wanted
            self._request(pod)
            self._expect_end(pod, wanted)

    def _request(self, pod: PodRecord, at: float = 0.0) -> None:
        self._requests.append(Request(pod, at))
        self._changed.notify_all()

    def _expect_end(self, pod: PodRecord, grace_s: float) -> None:
        """Wait for the end of a deleted pod; one that does not end is on a lost node."""
        pod.lost_at = time.monotonic() + grace_s + _LOST_MARGIN_S
        self._request(pod, pod.lost_at)

    def _send_requests(self) -> None:
        while (request := self._next_request()) is not None:
            try:
                self._send(request.pod)
            except (ApiError, ApiUnavailable) as error:
                self._handle_refusal(request, error)

    def _next_request(self) -> Request | None:
        """Return the next one that is due; None when the platform is closed."""
        with self._changed:
            while not self._over.is_set():
                due = min(self._requests, key=lambda it: it.at, default=None)
                wait_s = due.at - time.monotonic() if due else None
                if due is not None and wait_s is not None and wait_s <= 0:
                    self._requests.remove(due)
                    return due
                self._changed.wait(wait_s)
        return None

    def _send(self, pod: PodRecord) -> None:
        with self._changed:
            if self._pods.get(pod.instance) is not pod:
                return
            grace_s, create = pod.grace_s, not pod.is_created
            is_lost = time.monotonic() >= pod.lost_at
            given_up = None if pod.is_started else pod.problem
            if time.monotonic() < pod.give_up_at:
                given_up = None
        if given_up is not None:
            self._give_up(pod, given_up)
        elif is_lost or (create and grace_s is not None):
            self._report_end(
                pod, pod_status.given_up() if is_lost else pod_status.vanished_pod_end()
            )
        elif create:
            self._create(pod)
        elif grace_s is not None:
            self._removal.delete(pod, grace_s)
        else:
            self._tell_unprepared(pod)

    def _create(self, pod: PodRecord) -> None:
        command = self._command(pod.worker)
        item = self._template.render(pod.instance, pod.worker, pod.attempt, command)
        try:
            self._api.create(self._pods_path, item)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            # An earlier request had an effect although it was not answered.
        with self._changed:
            pod.is_created = True
        self._over.wait(1 / _CREATED_PER_S)

    def _handle_refusal(self, request: Request, error: ApiError | ApiUnavailable) -> None:
        """Try again later, or report that the pod cannot be created."""
        pod = request.pod
        if isinstance(error, ApiError) and not pod_record.may_pass(error, request.retry_s):
            if not pod.is_created:
                self._report_not_started(pod, f"the pod was refused: {error.message}", True)
                return
            log.error("%s cannot be deleted: %s", pod.instance, error.message)
        log.warning("%s: %s; trying again in %.0f s", pod.instance, error, request.retry_s)
        if not pod.is_created:
            is_quota = isinstance(error, ApiError) and error.is_quota
            reason = "QuotaExceeded" if is_quota else "ApiUnavailable"
            self._observations.put(InstancePending(pod.worker, reason, str(error)))
        again = Request(pod, time.monotonic() + request.retry_s, 2 * request.retry_s)
        again.retry_s = min(again.retry_s, _MAX_RETRY_S)
        with self._changed:
            self._requests.append(again)

    # --- observation -----------------------------------------------------------------------

    def _follow_pods(self) -> None:
        retry_s = FIRST_RETRY_S
        while not self._over.is_set():
            try:
                self._list_and_watch()
                retry_s = FIRST_RETRY_S
            except ApiUnavailable as error:
                log.warning("the API server does not answer: %s", error)
            except ApiError as error:
                if error.status != 410:  # the version has expired: list again
                    log.warning("the pods cannot be watched: %s", error.message)
            self._over.wait(retry_s)
            retry_s = min(2 * retry_s, _MAX_RETRY_S)

    def _list_and_watch(self) -> None:
        with self._following:
            version = self._list()
        watch = self._api.watch(self._pods_path, self._template.selector, version, _WATCH_S)
        for event in watch:
            if self._over.is_set():
                return
            with self._following:
                if event.kind == "DELETED":
                    self._see_gone(InstanceId(event.item["metadata"]["name"]), event.item)
                elif event.kind != "BOOKMARK":
                    self._see(event.item)

    def _list(self) -> str:
        """Look at all pods; returns the version from which to watch them."""
        with self._changed:
            # A pod that is created from now on may be missing in the list.
            expected = {pod.instance for pod in self._pods.values() if pod.is_created}
        listing = self._api.list(self._pods_path, self._template.selector)
        names = {item["metadata"]["name"] for item in listing.items}
        for item in listing.items:
            self._see(item)
        for instance in expected - names:
            self._see_gone(instance, None)
        return listing.version

    def _see(self, item: JsonObject) -> None:
        """Compare a pod with what is known about it."""
        with self._changed:
            pod = self._pods.get(InstanceId(item["metadata"]["name"]))
            if pod is None or pod.is_ending:
                return
            if not pod.is_started and pod_status.is_running(item, objects.CONTAINER):
                self._report_started(pod)
            if "deletionTimestamp" in item["metadata"] and math.isinf(pod.lost_at):
                self._expect_end(pod, item["metadata"].get("deletionGracePeriodSeconds", 0))
        end = pod_status.pod_end(item, objects.CONTAINER)
        if end is not None:
            self._report_end(pod, end)
        elif not pod.is_started:
            self._see_waiting(pod, item)

    def _see_waiting(self, pod: PodRecord, item: JsonObject) -> None:
        problem = pod_status.start_problem(item, objects.CONTAINER)
        with self._changed:
            before, pod.problem = pod.problem, problem
            # Nothing may happen to the pod for minutes: do not wait for an event.
            for at in pod.expect_start(before, problem):
                self._request(pod, at)
        if problem is None or problem == before or problem.is_preparing:
            return
        log.info("%s waits: %s", pod.instance, problem)
        self._observations.put(InstancePending(pod.worker, problem.reason, problem.detail))
        if problem.is_final:
            self._give_up(pod, problem)

    def _tell_unprepared(self, pod: PodRecord) -> None:
        """Report a pod that has waited for its volumes for long; every pod waits for a while."""
        with self._changed:
            problem = None if pod.is_started else pod.problem
        if problem is not None and problem.is_preparing:
            log.warning("%s waits: %s", pod.instance, problem)
            self._observations.put(InstancePending(pod.worker, problem.reason, problem.detail))

    def _give_up(self, pod: PodRecord, problem: StartProblem) -> None:
        """Give up a pod that will never run; every other one like it would end alike."""
        self._report_not_started(pod, str(problem), True)  # first: its deletion is no end
        with contextlib.suppress(RuntimeError):  # closed
            self._ends.submit(self._removal.remove, pod, _FORCE)

    def _see_gone(self, instance: InstanceId, last: JsonObject | None) -> None:
        """Account for a pod that has disappeared; its last state may still say that it ran."""
        with self._changed:
            pod = self._pods.get(instance)
        if pod is None:
            return
        end = pod_status.pod_end(last, objects.CONTAINER) if last else None
        self._report_end(pod, end or pod_status.vanished_pod_end())

    # --- reports ---------------------------------------------------------------------------

    def _report_started(self, pod: PodRecord) -> None:
        pod.is_started = True
        self._observations.put(InstanceStarted(pod.worker, pod.attempt, pod.instance))

    def _report_not_started(self, pod: PodRecord, reason: str, permanent: bool) -> None:
        with self._changed:
            if self._pods.pop(pod.instance, None) is not None:
                self._observations.put(InstanceNotStarted(pod.worker, reason, permanent))
            self._changed.notify_all()

    def _report_end(self, pod: PodRecord, end: PodEnd) -> None:
        with self._changed:
            if pod.is_ending:
                return
            pod.is_ending = True
            if not pod.is_started:
                self._report_started(pod)
        try:
            self._ends.submit(self._finish, pod, readable_end(end))
        except RuntimeError:  # closed
            self._forget(pod)

    def _finish(self, pod: PodRecord, end: PodEnd) -> None:
        """Save the log before the pod is deleted; report the end before the pod is forgotten."""
        tail = self._logs.save(pod, end.container)
        tail += f"\n({end.words})" if end.words else ""
        self._observations.put(
            InstanceExited(
                worker=pod.worker,
                instance=pod.instance,
                exit_code=end.exit_code,
                signal=end.signal,
                preempted=end.is_disruption and not pod.is_asked,
                log_tail=tail,
                attempt=pod.attempt,
                cause="" if pod.is_asked else end.words,
            )
        )
        self._forget(pod)
        self._removal.remove(pod, 0)

    def _forget(self, pod: PodRecord) -> None:
        with self._changed:
            self._pods.pop(pod.instance, None)
            self._changed.notify_all()
