"""The ports to model zoos, trained models, and the check of a model file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from edl.core.job_status import Failure
from edl.core.model_code import Listing
from edl.core.submission import Submission
from edl.core.tracking import KerasModel
from edl_runtime.model.git_source import GitSource
from edl_runtime.model.zoo_files import ZooFiles


class ModelZoos(Protocol):
    """Folders of model files, on this machine or in a git repository."""

    def fetch(self, zoo: GitSource) -> Path:
        """Return a folder with the files of a git repository. Raises: EdlError."""

    def check(self, job: Submission) -> None:
        """Check that a zoo has the model that a job names. Raises: EdlError: MODEL_NOT_FOUND."""

    def check_folder(self, zoo: Path) -> None:
        """Check that a zoo is a folder. Raises: EdlError: MODEL_NOT_FOUND."""

    def files_of(self, job: Submission) -> ZooFiles:
        """Return what belongs to the model of a job whose zoo is a folder of this machine."""

    def find_outside_files(self, job: Submission, files: ZooFiles) -> tuple[str, ...]:
        """Return a warning for each file outside the zoo that a job's code reads at its import."""

    def hash_code(self, folder: Path, names: Iterable[str]) -> Listing:
        """Return the hashes of what belongs to the model of these names. Raises: EdlError."""


class TrainedModels(Protocol):
    """The folders that training jobs leave."""

    def image_of(self, folder: str) -> str:
        """Return the name of the image that a model was trained in; empty if there was none.

        Raises:
            EdlError: MODEL_NOT_FOUND or FORBIDDEN.
        """

    def open_keras_model(self, folder: str) -> AbstractContextManager[KerasModel]:
        """Return a context with the Keras model as a file of this machine."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings of a worker; without failures, the model file can train.

    Attributes:
        warnings: what the trained model will lack and which metrics are no numbers, in sentences.
        facts: the worker's whole report.
    """

    failures: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def strategy_lines(self) -> list[str]:
        """A line about the strategy of training; none if only data can show which it is."""
        strategy = self.facts.get("strategy")
        return [f"training uses --strategy {strategy}"] if strategy else []


ModelCheck: TypeAlias = Callable[[Submission], Verdict]
"""Has a worker find all errors of a job's model file at once."""
