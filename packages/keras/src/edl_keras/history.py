"""What a job reports of its epochs: a ``History`` as that of Keras, and lines while it runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import keras

from edl.plugins.backends import JobLogs
from edl.plugins.job_status import JobEvent, JobStatus, LogChoice
from edl.plugins.jobs import NotebookDisplay
from edl_keras.callbacks import LocalCallbacks
from edl_keras.model_file import REPORT

Logs = dict[str, float]


class EpochDisplay:
    """A ``JobDisplay`` that follows the epochs of a job of ``fit``.

    Args:
        logs: opens the logs of a job.
        epochs: how many there are to be.
        callbacks: get the values of each epoch.
        show: takes a line about each epoch.
        panel: in a notebook, shows the job instead of these lines.
    """

    def __init__(
        self,
        logs: Callable[[str, LogChoice], JobLogs],
        job: str,
        epochs: int,
        callbacks: LocalCallbacks,
        show: Callable[[str], object],
        panel: NotebookDisplay | None = None,
    ) -> None:
        self._logs = logs(job, LogChoice("worker"))
        self._epochs = epochs
        self._callbacks = callbacks
        self._show = show
        self._panel = panel
        self._since_s = time.monotonic()
        self._found: dict[int, Logs] = {}
        callbacks.begin()

    def update(self, status: JobStatus) -> None:
        """Read what the workers have reported since the last call."""
        for line in self._logs.poll(final=status.state.is_over):
            if line.text.startswith(REPORT):
                self._take(json.loads(line.text.removeprefix(REPORT)))
        if self._panel is not None:
            self._panel.update(status, self.rows)

    def show_event(self, event: JobEvent) -> None:
        """Show warnings of the job; not of what the trained model lacks besides its weights."""
        shown = event.kind not in ("JobFailed", "ModelWarning")
        if shown and event.severity in ("warning", "error"):
            self._show(event.message)

    def say(self, text: str) -> None:
        """Show a message."""
        self._show(text)

    def close(self) -> None:
        """Do nothing, as lines stay where they are."""

    def history(self, model: keras.Model) -> keras.callbacks.History:
        """Return the values of all epochs, as Keras's own ``fit`` returns them."""
        history = keras.callbacks.History()
        history.set_model(model)
        history.set_params({"epochs": self._epochs, "steps": None, "verbose": 0})
        history.on_train_begin()
        for epoch in sorted(self._found):
            history.on_epoch_end(epoch, self._found[epoch])
        return history

    @property
    def rows(self) -> list[Logs]:
        """The values of all epochs so far, with the number of the epoch."""
        return [{"epoch": epoch + 1, **self._found[epoch]} for epoch in sorted(self._found)]

    def end(self) -> None:
        """Call ``on_train_end`` of the callbacks."""
        self._callbacks.end(self._found[max(self._found)] if self._found else {})

    def _take(self, report: dict[str, Any]) -> None:
        """Take the values of an epoch; after a loss of workers, an epoch may be reported twice."""
        epoch, logs = int(report["epoch"]), _in_order(report["logs"])
        is_new = epoch not in self._found
        self._found[epoch] = logs
        if not is_new:
            return
        now = time.monotonic()
        if self._panel is None:
            shown = " - ".join(f"{name}: {value:.4g}" for name, value in logs.items())
            self._show(f"Epoch {epoch + 1}/{self._epochs} - {now - self._since_s:.0f}s - {shown}")
        self._since_s = now
        self._callbacks.end_epoch(epoch, logs)


def _in_order(logs: Logs) -> Logs:
    """Return the values in Keras's order: of the training, of the validation, the rate."""
    ranks = {"learning_rate": 2}
    names = sorted(logs, key=lambda name: (ranks.get(name, name.startswith("val_")), name))
    return {name: logs[name] for name in names}
