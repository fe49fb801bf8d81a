"""Sends what happens to a job to an experiment tracker, while it runs or afterwards."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from edl.core import tracking
from edl.core.options import Verb
from edl.core.tracking import KerasModel
from edl.ports.experiment_tracker import ExperimentTracker, TrackerUnavailable
from edl.ports.job_backend import JobBackend, StatusReport
from edl_proto.errors import EdlError

POLL_S = 2.0
GIVE_UP_S = 15.0
"""How long after the end of a job a tracker that does not answer is tried."""
_SEND_LIMIT_S = 600.0
"""How long sending the rest, such as the model, may take in all."""
_SILENT_S = 3.0
"""A longer wait is explained to the user."""

OpenModel = Callable[[str], AbstractContextManager[KerasModel]]
"""Gives the Keras model of an output while it is needed; raises ``EdlError`` if there is none."""


class JobTracking:
    """Follows one job until its end. A tracker that fails never changes the job.

    Whatever the run has already is not sent again: any number of these may follow a job, one
    after the other or at the same time, and each may begin at any moment.

    Args:
        backend: used by this object alone.
        open_model: opens the model of a training job that succeeded.
        say: takes messages for the user.
    """

    def __init__(
        self,
        backend: JobBackend,
        name: str,
        tracker: ExperimentTracker,
        open_model: OpenModel,
        say: Callable[[str], None],
    ) -> None:
        self._backend = backend
        self._name = name
        self._tracker = tracker
        self._open_model = open_model
        self._say = say
        self._steps: dict[str, int] | None = None
        self._place = ""
        self._warned = False

    def run(self, give_up_s: float = GIVE_UP_S) -> str:
        """Send until the job is over and all is sent.

        Args:
            give_up_s: how long a tracker that does not answer is tried after the end of the job.

        Returns:
            Where a person sees the run; empty if the job has never started.

        Raises:
            EdlError: there is no such job.
            TrackerUnavailable: the tracker did not answer in time after the end of the job.
        """
        deadline: float | None = None
        try:
            while True:
                report = self._backend.status(self._name)
                if report.is_over and deadline is None:
                    deadline = time.monotonic() + give_up_s
                try:
                    self._send(report)
                    if report.is_over:
                        return self._place
                except TrackerUnavailable as error:
                    self._warn(error)
                    if deadline is not None and time.monotonic() > deadline:
                        raise
                time.sleep(POLL_S)
        finally:
            self._backend.close()

    def _warn(self, error: TrackerUnavailable) -> None:
        if not self._warned:
            self._warned = True
            self._say(
                f"warning: the tracker does not answer ({error}); the job continues, and edl tries"
                " again"
            )

    def _send(self, report: StatusReport) -> None:
        details = report.details()
        started_at_s = tracking.started_at_s(details)
        if started_at_s is None:
            return  # no master has run yet, so there is nothing to say
        if self._steps is None:
            description = report.description()
            submitted_at = str(description.get("submitted_at") or "")
            self._place = self._tracker.open(self._name, submitted_at, started_at_s)
            self._tracker.log_parameters(tracking.parameters(description))
            self._steps = dict(self._tracker.last_steps())
            self._say(f"{self._name} is tracked: {self._place}")
            self._warned = False
        if new := tracking.measurements(details, self._steps):
            self._tracker.log_metrics(new)
            self._note_answer()
            for one in new:
                self._steps[one.name] = max(one.step, self._steps.get(one.name, -1))
        if report.is_over:
            self._end(report, started_at_s)
            self._note_answer()

    def _note_answer(self) -> None:
        """Report that the tracker answers again, if it was silent; call it after an answer only."""
        if self._warned:
            self._warned = False
            self._say("the tracker answers again")

    def _end(self, report: StatusReport, started_at_s: float) -> None:
        status = report.status
        end = tracking.run_end(status.state)
        if end is tracking.RunEnd.FINISHED and status.verb is Verb.TRAIN and status.output:
            self._send_model(status.output)
        self._tracker.end(end, started_at_s + status.seconds)

    def _send_model(self, output: str) -> None:
        try:
            with self._open_model(output) as model:
                if not self._tracker.has_model(model.version):
                    self._tracker.log_model(model)
        except EdlError as error:
            self._say(f"warning: the tracker gets no model: {error.what} ({error.where})")


class BackgroundTracking:
    """A thread that runs a ``JobTracking`` in parallel with the command that waits for the job."""

    def __init__(self, job: str, run: Callable[[], object], say: Callable[[str], None]) -> None:
        self._job = job
        self._run = run
        self._say = say
        self._failure = ""
        # Where jobs are looked for belongs to the context of the command.
        context = contextvars.copy_context()
        # The command's end must not wait for a tracker that hangs.
        self._thread = threading.Thread(
            target=lambda: context.run(self._run_guarded), name="tracking", daemon=True
        )
        self._thread.start()

    def _run_guarded(self) -> None:
        try:
            self._run()
        except Exception as error:  # no failure of tracking may end the command
            self._failure = getattr(error, "what", "") or str(error) or type(error).__name__

    def finish(self) -> None:
        """Wait until all is sent of the job, which is over, and say what is missing."""
        self._thread.join(_SILENT_S)
        if self._thread.is_alive():
            self._say(f"sending the rest of {self._job} to the tracker")
            self._thread.join(_SEND_LIMIT_S)
        if self._thread.is_alive():
            self._failure = f"it is not done after {_SEND_LIMIT_S:.0f} s"
        if self._failure:
            self._say(
                f"warning: the tracker has received only a part of {self._job} ({self._failure}); "
                f"edl track {self._job} sends the rest"
            )
