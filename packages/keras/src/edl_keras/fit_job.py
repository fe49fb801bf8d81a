"""The handle of a job of ``fit``: waiting, watching and changing, from any process."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras

from edl.plugins.backends import JobBackend
from edl.plugins.errors import EdlError, ErrorCode, error_of, for_python
from edl.plugins.job_status import JobState, JobStatus
from edl.plugins.jobs import (
    JobWatcher,
    NotebookDisplay,
    SilentDisplay,
    api,
    change,
    command_name,
    in_notebook,
    job_catalog,
    panel,
)
from edl.plugins.submissions import WorkerRange
from edl_keras.callbacks import Callback, LocalCallbacks
from edl_keras.errors import wrong_model
from edl_keras.fit_checks import name_in_fit
from edl_keras.history import EpochDisplay
from edl_keras.trained_weights import load_weights
from edl_runtime.local import job_directory


def folders() -> Path:
    """Return the folder of what jobs of ``fit`` read and write on this machine."""
    return job_directory.home() / "fits"


@contextmanager
def submission(job: str) -> Iterator[Path]:
    """Yield a new folder for what a job reads; it goes if the job is not submitted within."""
    folders().mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = Path(tempfile.mkdtemp(prefix=f"{job}-", dir=folders()))
    try:
        yield folder
    except BaseException:
        with job_catalog() as catalog:
            is_submitted = catalog.has(job)
        if not is_submitted:
            shutil.rmtree(folder, ignore_errors=True)
        raise


class FitJob:
    """A job of ``fit``; several processes may have a handle of one.

    Args:
        model: gets the trained weights; None: ``wait`` only returns the history.
        callbacks: called by ``wait`` with the values of each epoch.
        epochs: how many there are to be; 0: as the job says.
        verbose: whether ``wait`` prints a line about each epoch.

    Attributes:
        name: of the job.
    """

    def __init__(
        self,
        name: str,
        model: keras.Model | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        epochs: int = 0,
        verbose: bool = True,
    ) -> None:
        self.name = name
        self._model = model
        self._callbacks = callbacks
        self._is_verbose = verbose
        self._show = print if verbose else _ignore
        self._is_loaded = False
        self._epochs = epochs

    def __repr__(self) -> str:
        return f"<FitJob {self.name}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """Return what a notebook shows of a handle: the job as it is now."""
        try:
            with self._backend() as backend:
                display = self._display(backend, _ignore, ())
                status = backend.status(self.name).status
                display.update(status)
                return panel(status, display.rows)
        except EdlError:
            return {"text/plain": repr(self)}

    @for_python
    def progress(self) -> dict[str, Any]:
        """Return how far the job is: state, epoch, epochs, fraction, workers and loss."""
        with self._backend() as backend:
            status = backend.status(self.name).status
        return {
            "state": status.state.value,
            "epoch": status.epoch,
            "epochs": status.num_epochs,
            "fraction": round(status.fraction, 4),
            "records_per_s": round(status.records_per_s, 1),
            "workers": status.at_work,
            "loss": None if math.isnan(status.loss) else status.loss,
        }

    @for_python
    def metrics(self) -> list[dict[str, float]]:
        """Return a row for each epoch so far; ``pandas.DataFrame`` takes these rows."""
        with self._backend() as backend:
            display = self._display(backend, _ignore, ())
            display.update(backend.status(self.name).status)
        return display.rows

    @for_python
    def scale(self, workers: int | str) -> None:
        """Change the number of workers: ``4``, or ``"2:8"`` for as many as are useful.

        Raises:
            EdlError: the job is over, or this is no number of workers.
        """
        least, _, most = str(workers).partition(":")
        if not least.isdigit() or not (most or least).isdigit():
            what = f"{workers!r} is no number of workers"
            raise wrong_model(what, 'Write 4 or "2:8".', where="scale(workers=...)")
        with self._backend() as backend:
            change(backend, self.name, WorkerRange(int(least), int(most or least)), self._show)

    @for_python
    def stop(self) -> None:
        """End the job; ``edl resume`` continues it.

        Raises:
            EdlError: the master does not answer.
        """
        with self._backend() as backend:
            watcher = JobWatcher(backend, self.name, SilentDisplay())
            watcher.stop("FitJob.stop")
            watcher.run()

    @for_python
    def model(self) -> keras.Model:
        """Return the model with its newest weights: those of a snapshot while the job runs.

        Raises:
            EdlError: there is no snapshot yet, or this handle has no model.
        """
        if self._model is None:
            what, remedy = "this handle has no model", "elasticdl.attach(name, model) has."
            raise wrong_model(what, remedy, where=f"attach({self.name!r})")
        with self._backend() as backend:
            status = backend.status(self.name).status
        if status.state is JobState.SUCCEEDED:
            self._load(status)
            return self._model
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "model"
            api.export(self.name, output=str(output))
            load_weights(self._model, output)
        return self._model

    @for_python
    def wait(self) -> keras.callbacks.History:
        """Wait for the end of the job, give the model its weights and return the history.

        Ctrl-C leaves the job running.

        Raises:
            EdlError: the job has failed or was stopped.
        """
        model = self._model if self._model is not None else keras.Sequential()
        with self._backend() as backend:
            self._show(
                f"The job {self.name} trains; {command_name()} dashboard {self.name} shows it."
            )
            live = NotebookDisplay() if self._is_verbose and in_notebook() else None
            display = self._display(backend, self._show, self._callbacks, live)
            try:
                status = JobWatcher(backend, self.name, display).run()
            except KeyboardInterrupt as interrupt:
                self._show(f"The job {self.name} continues. {self._steps}")
                interrupt.add_note(f"The job {self.name} continues. {self._steps}")
                raise
            if status.failure is not None:
                raise self._failure(backend, status)
        self._load(status)
        history = display.history(model)
        if self._model is not None:
            self._model.history = history
        display.end()
        return history

    @property
    def _steps(self) -> str:
        """The sentence about what a person can do with the job, which runs."""
        edl = command_name()
        return (
            f"elasticdl.attach({self.name!r}, model).wait() returns to it and gives the model its"
            f" weights; {edl} status {self.name} shows it, {edl} stop {self.name} ends it."
        )

    @contextmanager
    def _backend(self) -> Iterator[JobBackend]:
        with job_catalog() as catalog:
            yield catalog.find(self.name)

    def _display(
        self,
        backend: JobBackend,
        show: Any,
        callbacks: Sequence[Callback],
        live: NotebookDisplay | None = None,
    ) -> EpochDisplay:
        epochs = self._epochs or backend.status(self.name, ask=False).status.num_epochs
        model = self._model if self._model is not None else keras.Sequential()
        return EpochDisplay(
            backend.logs, self.name, epochs, LocalCallbacks(callbacks, model, epochs), show, live
        )

    def _load(self, status: JobStatus) -> None:
        """Give the model the trained weights, and remove what the job no longer needs."""
        if self._model is None or self._is_loaded:
            return
        if not Path(status.output).exists():
            raise EdlError(
                ErrorCode.MODEL_NOT_FOUND,
                f"the trained model of {self.name} is not there any more",
                where=status.output,
                remedy="A handle that has waited before has given its model the weights.",
            )
        load_weights(self._model, Path(status.output))
        self._is_loaded = True
        self._clean()

    def _clean(self) -> None:
        for folder in folders().glob(f"{self.name}-????????"):
            shutil.rmtree(folder, ignore_errors=True)

    def _failure(self, backend: JobBackend, status: JobStatus) -> EdlError:
        """Return the error of a job, with a remedy for a program; drop data of no use."""
        assert status.failure is not None
        error = error_of(status.failure)
        steps = backend.continuation.next_steps(status)
        remedy = error.remedy
        is_of_fit = any(folders().glob(f"{self.name}-????????"))
        if is_of_fit and not status.epochs_done and remedy.endswith(steps):
            self._clean()
            remedy = f"{remedy.removesuffix(steps)}Then call fit again."
        what, remedy = name_in_fit(error.what), name_in_fit(remedy)
        return EdlError(error.code, what, where=error.where, remedy=remedy, detail=error.detail)


@for_python
def attach(name: str, model: keras.Model | None = None) -> FitJob:
    """Return a handle of a job that ``fit`` has started, in this process or another one.

    Args:
        model: made as the one that the job trains; it gets the weights.

    Raises:
        EdlError: there is no such job.
    """
    with job_catalog() as catalog:
        catalog.find(name)
    return FitJob(name, model)


def _ignore(text: str) -> None:
    """Show nothing."""
