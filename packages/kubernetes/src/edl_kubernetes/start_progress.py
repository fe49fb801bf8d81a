"""Reports what the start of a job's master waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from edl.plugins.backends import Say
from edl_kubernetes.cluster import objects
from edl_kubernetes.core.templates import JsonObject
from edl_kubernetes.job_objects import JobObjects
from edl_kubernetes.master_pods import (
    MasterProblem,
    StartPhase,
    newest_pod,
    start_phase,
)
from edl_proto.errors import EdlError
from edl_proto.printable import clip, one_line
from edl_runtime.monitoring.log_lines import readable

_BRIEF_S = 3.0
"""How long a phase of a start may last before it is reported."""

_REFRESH_S = 10.0
"""How often such a phase is described anew: events and logs may say more."""

_REPEAT_S = 60.0
"""The time after which a sentence is repeated while it is still true."""

_CREATED = "Created pod"
"""The beginning of an event of a Job. If it is the last event and there is no pod, the pod was
deleted."""

_MAX_PER_MINUTE = 10
"""The number of sentences: messages of a busy scheduler differ only in their counts of nodes."""

_MAX_CHARACTERS = 1000
"""The length of a sentence: a registry may answer with a whole page."""


@dataclass(slots=True)
class StartProgress:
    """Reports the progress of one start, without repeating itself.

    Attributes:
        objects: the objects of the job.
        name: the name of the job.
        say: called with each sentence.
    """

    objects: JobObjects
    name: str
    say: Say
    _phase: StartPhase | None = None
    _due_at: float = 0.0
    _words: str = ""
    _reported_at: dict[str, float] = field(default_factory=dict)
    _last: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_PER_MINUTE))
    """The times of the last sentences."""

    def update(self, pods: Sequence[JsonObject], problem: MasterProblem | None, now: float) -> None:
        """Report what is new: a problem at once, a phase when it takes longer than usual.

        Args:
            pods: the pods of the master, of which none is ready.
            problem: what keeps the newest pod from being ready, if that is known.
            now: the time in seconds.
        """
        if problem and not problem.is_unprepared:
            self._phase = None
            self._report(self.explain(problem, pods), now)
            return
        phase = start_phase(newest_pod(pods))
        if phase != self._phase:
            self._phase, self._due_at = phase, now + _BRIEF_S
        elif now >= self._due_at:
            self._due_at = now + _REFRESH_S
            self._report(self.describe(pods), now)

    def explain(self, problem: MasterProblem, pods: Sequence[JsonObject]) -> str:
        """Describe a problem; the events of a claim say more of it than the scheduler does."""
        pod = newest_pod(pods)
        volume = self._pending_volume(pod) if problem.lacks_volume and pod is not None else ""
        return f"its volume is not available{volume}" if volume else problem.what

    def note_outage(self, now: float) -> None:
        """Report that the API server does not answer."""
        self._phase = None
        self._report("the cluster does not answer", now)

    def describe(self, pods: Sequence[JsonObject]) -> str:
        """Describe the phase of the start, with the last message of Kubernetes or the master."""
        pod = newest_pod(pods)
        phase = start_phase(pod)
        words = str(phase)
        if pod is None:
            events = self.objects.events(self.name, "Job")
            if events and events[-1].startswith(_CREATED):
                return str(StartPhase.DISRUPTED)
            return f"{words}: {events[-1]}" if events else words
        named = pod["metadata"]["name"]
        match phase:
            case StartPhase.UNSCHEDULED:
                return f"{words}{self._pending_volume(pod)}"
            case StartPhase.UNPREPARED:
                events = self.objects.events(self.name, "Pod", named, warnings=True)
                return f"{words}: {readable(events[-1])}" if events else words
            case StartPhase.CREATING:
                events = self.objects.events(self.name, "Pod", named)
                return f"{words}: {readable(events[-1])}" if events else words
            case StartPhase.RUNNING:
                return f"{words}{self._last_log_line(named)}"
            case _:
                return words

    def _pending_volume(self, pod: JsonObject) -> str:
        """Describe the first claim of a pod without a volume, as the end of a sentence."""
        for volume in pod["spec"].get("volumes") or ():
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
            if claim and not self.objects.is_bound(self.name, claim):
                events = self.objects.events(self.name, "PersistentVolumeClaim", claim)
                return f"; the volume of the claim {claim} is not there yet" + (
                    f": {readable(events[-1])}" if events else ""
                )
        return ""

    def _last_log_line(self, pod: str) -> str:
        """Return the last line of a running master's log, as the end of a sentence."""
        query = {"container": objects.CONTAINER, "tailLines": "1"}
        try:
            line = self.objects.log(self.name, pod, query).strip()
        except EdlError as error:  # only a part of a message: the start does not depend on it
            return f"; its log cannot be read: {error.what}"
        return f"; the last line of its log: {readable(line)}" if line else ""

    def _report(self, words: str, now: float) -> None:
        words = one_line(clip(words, _MAX_CHARACTERS))
        known_at = self._reported_at.get(words)
        if known_at is not None and now - known_at < _REPEAT_S:
            return
        # Between two attempts to pull an image, the node quotes its message about the last one.
        is_quoted = words.endswith(self._words) or self._words.endswith(words)
        if self._words and words != self._words and is_quoted:
            return
        if len(self._last) == _MAX_PER_MINUTE and now - self._last[0] < 60.0:
            return
        self._last.append(now)
        self._words, self._reported_at[words] = words, now
        self.say(f"{self.name} waits for its master: {words}")
