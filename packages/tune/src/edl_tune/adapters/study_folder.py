"""The folder of a study: its plan, its trials, a copy of the code, and the models of its trials."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from edl.plugins.errors import EdlError, ErrorCode
from edl.plugins.texts import did_you_mean
from edl_runtime.files import replace_file
from edl_runtime.local import job_directory
from edl_runtime.model import zoo_files
from edl_tune.core.plan import StudyPlan, plan_of

PLAN, TRIALS, TABLE, REPORT = "study.json", "trials.journal", "trials.csv", "report.html"
_LOCK, _CODE, _PUBLISHED = "lock", "code", "published.json"


class StudyFolder:
    """The folder of one study, below ``$EDL_HOME/studies``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = _root() / name

    @property
    def journal(self) -> Path:
        """The file of Optuna's storage."""
        return self.path / TRIALS

    @property
    def report(self) -> Path:
        """The page of the study."""
        return self.path / REPORT

    @property
    def table(self) -> Path:
        """The table of trials, as CSV."""
        return self.path / TABLE

    @property
    def exists(self) -> bool:
        """Whether there is a study of this name."""
        return (self.path / PLAN).is_file()

    def read_plan(self) -> StudyPlan:
        """Return the plan of the study.

        Raises:
            EdlError: JOB_NOT_FOUND; there is no study of this name.
        """
        if not self.exists:
            known = names()
            raise EdlError(
                ErrorCode.JOB_NOT_FOUND,
                f"there is no study named {self.name}",
                where=str(_root()),
                remedy=did_you_mean(self.name, known)
                or (f"There are {', '.join(known)}." if known else "edl tune --help starts one."),
            )
        return plan_of(json.loads((self.path / PLAN).read_text()))

    def write_plan(self, plan: StudyPlan) -> None:
        """Record the plan; from then on the study exists."""
        content = json.dumps(plan.to_dict(), indent=1)
        replace_file(self.path / PLAN, content.encode(), durable=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Have the study alone within the context; its folder is made if need be.

        Raises:
            EdlError: JOB_EXISTS; another command runs the study.
        """
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EdlError(
                    ErrorCode.JOB_EXISTS,
                    f"another command runs the study {self.name}",
                    where=str(self.path),
                    remedy="Wait for its end, or end that command: its jobs go on, and this command"
                    " takes them over.",
                ) from None
            yield
        finally:
            os.close(descriptor)

    def copy_code(self, zoo: Path, options: Mapping[str, Any]) -> Path:
        """Copy the model files, so that all trials train the same code; returns the copy.

        It lies under the zoo's whole path: errors in it are told with a path that users know.
        """
        names = zoo_files.code_names(lambda field: str(options.get(field) or ""))
        zoo = zoo.resolve()
        own = zoo_files.select(zoo, names).paths
        chosen = {*own, *zoo_files.select(zoo, names, others=True).paths}
        root = self.path / _CODE
        shutil.rmtree(root, ignore_errors=True)
        copy = Path(f"{root}{zoo}")
        copy.mkdir(parents=True)
        for path in sorted(chosen):
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(zoo / path, copy / path)
        return copy

    def write_table(self, lines: Sequence[str]) -> None:
        """Replace the table of trials."""
        replace_file(self.table, "".join(f"{line}\n" for line in lines).encode())

    def write_report(self, page: str) -> None:
        """Replace the page of the study."""
        replace_file(self.report, page.encode())

    def publish(self, model: Path, output: Path, trial: int) -> None:
        """Copy the model of a trial to the output of the study, unless it is there.

        Raises:
            EdlError: OUTPUT_UNWRITABLE; the copy cannot be written.
        """
        marker = self.path / _PUBLISHED
        published = json.loads(marker.read_text()) if marker.is_file() else None
        if output.exists() and published == {"output": str(output), "trial": trial}:
            return
        temporary = output.with_name(f".{output.name}.{self.name}.tmp")
        former = output.with_name(f".{output.name}.{self.name}.former")
        record = partial(json.dumps, {"output": str(output), "trial": trial})
        try:
            for each in (temporary, former):
                shutil.rmtree(each, ignore_errors=True)
            output.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(model, temporary)
            if output.exists() and published is not None:  # that of a trial that was the best
                output.rename(former)
            replace_file(marker, record().encode(), durable=True)
            temporary.rename(output)
            shutil.rmtree(former, ignore_errors=True)
        except OSError as error:
            raise EdlError(
                ErrorCode.OUTPUT_UNWRITABLE,
                f"the best model cannot be copied to the output: {error.strerror or error}",
                where=str(output),
                remedy=f"The model is in {model}. edl tune --resume {self.name} copies it again.",
            ) from None


def names() -> list[str]:
    """Return the names of all studies of this machine."""
    return sorted(path.parent.name for path in _root().glob(f"*/{PLAN}"))


def _root() -> Path:
    return job_directory.home() / "studies"
