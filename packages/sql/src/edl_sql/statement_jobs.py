"""The jobs that statements of SQL run, and the models that these jobs leave."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import unwrap
from typing import Any, ParamSpec, TypeVar, cast

from edl.plugins.errors import Problem, usage
from edl.plugins.jobs import JobCatalog, JobWatcher, SilentDisplay
from edl.plugins.submissions import names
from edl_proto.errors import EdlError, ErrorCode
from edl_sql.models import SqlModels

P = ParamSpec("P")
R = TypeVar("R")

_RERUN_REMEDY = (
    "run the statement again, which reads its rows again. To see the job's log: edl logs "
)


def as_command(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function of the Python API whose errors name options of the command line."""
    return cast(Callable[P, R], unwrap(function))


class StatementJobs:
    """Names the jobs of statements, and keeps their models usable whenever this process ends.

    Args:
        models: that statements name.
        catalog: of all jobs.
        report: called with a line about what is done.
    """

    def __init__(
        self,
        models: SqlModels,
        catalog: JobCatalog,
        report: Callable[[str], None],
    ) -> None:
        self._models = models
        self._catalog = catalog
        self._report = report

    def check_free(self, model: str, *, replaces: bool = False) -> None:
        """Check that no model of this name is there or is being trained, and one can be written.

        Args:
            replaces: there may be one that a statement has trained.

        Raises:
            Problem: one is.
            EdlError: the store of the models does not answer, or takes nothing.
        """
        self._models.finish_replacements(model)
        # Other machines may train models of the same place: of their jobs, nothing is known.
        known = [job for job in self._models.find_announced_jobs(model) if self._catalog.has(job)]
        running = [job for job in known if not self._catalog.find(job).status(job).is_over]
        if running:
            raise usage(
                f"the job {running[0]} is training a model {model}",
                where=self._models.place(model),
                remedy=f"Wait for it: edl wait {running[0]}. Then statements can use the model."
                f" Or end it: edl stop {running[0]}",
            )
        if self._models.exists(model):
            if not replaces:
                raise usage(
                    f"there is a model {model} already",
                    where=self._models.place(model),
                    remedy="Choose another name, write CREATE OR REPLACE MODEL, or delete the"
                    " folder.",
                )
            self._models.read_description(model)  # nothing else is replaced
            self._models.replacement(model, "")
        self._models.check_writable(model)
        for job in known:
            self._models.withdraw(model, job)

    def read_description(self, model: str) -> dict[str, Any]:
        """Return what is stored about a model.

        Raises:
            EdlError: as ``SqlModels.read_description``; it names the job of a model that does not
                exist yet.
        """
        self._models.finish_replacements(model)
        try:
            return self._models.read_description(model)
        except EdlError as error:
            unknown = error.code == ErrorCode.MODEL_NOT_FOUND and not self._models.exists(model)
            jobs = self._models.find_announced_jobs(model) if unknown else []
            if not jobs:
                raise
            raise self._not_there(model, jobs) from None

    def _not_there(self, model: str, jobs: Sequence[str]) -> EdlError:
        """Return the error for a model that was announced and does not exist yet."""
        here = [job for job in jobs if self._catalog.has(job)]
        running = [job for job in here if not self._catalog.find(job).status(job).is_over]
        if running:
            what = f"the model {model} is not there yet"
            remedy = f"edl status {running[0]} shows the job that trains it."
        elif here:
            what = f"there is no model {model}: the job that was to train it is over"
            remedy = f"edl status {here[0]} shows how it ended. Then run TRAIN again."
        else:
            what = f"there is no model {model}: no job of this machine trains it"
            remedy = (
                "Its statement was killed before the job began, or was run on another machine."
                " Run TRAIN again, or wait for the other machine."
            )
        return EdlError(
            ErrorCode.MODEL_NOT_FOUND, what, where=self._models.place(model), remedy=remedy
        )

    @contextmanager
    def training(
        self, model: str, model_def: str, about: Mapping[str, Any], *, replaces: bool = False
    ) -> Iterator[tuple[str, str]]:
        """Yield the name of a job that trains a model for later statements, and its output.

        Args:
            replaces: a model of this name can be used until the job is done, and is replaced then.
            about: what statements have to know about the model.

        Raises:
            EdlError: nothing can be written where models are.
        """
        with self.running(names.find_subject(model_def)) as job:
            replaces = replaces and self._models.exists(model)
            place = self._models.place(model)
            output = self._models.replacement(model, job) if replaces else place
            self._models.announce(model, job, about)
            try:
                yield job, output
            except Exception:
                if not self._may_finish(job):
                    self._models.withdraw(model, job)
                raise
            self._models.write_description(model, job, about)

    def _may_finish(self, job: str) -> bool:
        """Return whether a job goes on without this process; a failed one has lost its records."""
        return self._catalog.has(job) and not self._catalog.find(job).status(job).is_over

    @contextmanager
    def running(self, subject: str) -> Iterator[str]:
        """Yield the name of a job. Ctrl-C stops it, because its records go with the statement.

        Args:
            subject: any text that the name is made from.

        Raises:
            EdlError: the job has failed; the remedy is one for the statement.
        """
        job = names.add_suffix(names.make_slug(subject) or "job", secrets.token_hex(3))
        try:
            yield job
        except KeyboardInterrupt:
            if self._catalog.has(job):
                self._report(f"stopping {job}")
                watcher = JobWatcher(self._catalog.find(job), job, SilentDisplay())
                watcher.stop("edl sql was interrupted")
                watcher.run()
            raise
        except (EdlError, Problem) as error:
            if self._catalog.has(job):
                error.remedy = self._remedy_of_statement(error.remedy, job)
            raise

    def _remedy_of_statement(self, remedy: str, job: str) -> str:
        """Return what can be done about a failed job, whose records are lost."""
        backend = self._catalog.find(job)
        found = backend.status(job)
        steps = backend.continuation.next_steps(found.status)
        if not found.is_over or not remedy.endswith(steps):
            return remedy
        before = remedy.removesuffix(steps).rstrip()
        again = f"{_RERUN_REMEDY}{job}"
        return f"{before} Then {again}" if before else again[:1].upper() + again[1:]
