"""Writes the trained model: everything that evaluation, prediction and serving need."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path

from edl_proto.errors import EdlError
from edl_runtime.files import flush
from edl_runtime.model import zoo_files
from edl_runtime.model.trained_model import MODEL_ZOO, PARAMETERS
from edl_runtime.timestamps import rfc3339
from edl_worker.codec.jobs import encode_trained_model
from edl_worker.core.job import JobDescription
from edl_worker.core.model_description import TrainedModelDescription
from edl_worker.core.step_engine import ExportForm, ModelEngine, OptimizerState, StepEngine
from edl_worker.core.tasks import ExportInfo
from edl_worker.model_file.error_messages import message_of
from edl_worker.model_file.zoo.importer import loaded_files
from edl_worker.model_file.zoo.outside_files import read_files
from edl_worker.tasks.export_attempts import crashed_forms, note_writing
from edl_worker.tasks.task_errors import is_about_writing, store_error, write_error
from edl_worker.trained_model import directory as trained_model
from edl_worker.trained_model import layer_states, weight_files
from recordio.storage.stores import filesystem, is_uri
from recordio.storage.uploads import send_persistently

log = logging.getLogger(__name__)

Save = Callable[[Path], object]
Lacks = Callable[[Exception], str]

_MAX_ERROR_CHARACTERS = 200
"""Characters of an error in a warning; the worker's log has all of it."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """A writer of a model with its present values.

    Attributes:
        job: what was submitted.
        engine: the model.
        steps: the values to write.
        optimizer: its state; None if the trained model has none.
    """

    job: JobDescription
    engine: ModelEngine
    steps: StepEngine
    optimizer: OptimizerState | None = None

    def export(self, info: ExportInfo, place: str) -> tuple[str, ...]:
        """Write the model to a place of this task's own; the master makes the output of it.

        Args:
            info: what the master knows of the model.
            place: a directory to make; a path, or the URI of a place in a store.

        Returns:
            What the model lacks, and why. It always has its parameters.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL; nothing is left behind.
        """
        try:
            if is_uri(place):
                return self._export_to_store(info, place)
            return self._export_here(info, Path(place))
        except Exception as error:
            discard(place)
            if is_about_writing(error) and not isinstance(error, EdlError):
                raise write_error(error, self.job.output or place) from error
            raise

    def expected_warnings(self, *, traces: bool = False) -> tuple[str, ...]:
        """Return what the trained model will lack, as far as that is known before training.

        Args:
            traces: trace the model for serving, too, which takes as long as a step's trace.

        Raises:
            EdlError: it lacks a form that the user asks for.
        """
        warnings = []
        for form in self.steps.export_forms():
            try:
                form.check(traces)
            except Exception as error:
                if form.is_required:
                    raise
                warnings.append(self._missing_form_warning(form, error))
            else:
                warnings += form.limits(traces)
        return tuple(warnings)

    def _export_here(self, info: ExportInfo, place: Path) -> tuple[str, ...]:
        place.mkdir(parents=True)
        warnings = self._write(info, place, crashed_forms(info.crashes, place))
        _sync_tree(place)
        flush(place.parent)
        return warnings

    def _export_to_store(self, info: ExportInfo, place: str) -> tuple[str, ...]:
        with tempfile.TemporaryDirectory(prefix="edl-export-") as folder:
            local = Path(folder)
            warnings = self._write(info, local, crashed_forms(info.crashes))
            try:
                system, path = filesystem(place)
                send_persistently(system, local, path)
            except Exception as error:  # a store's client has errors of its own
                raise store_error(error, self.job.output or place) from error
        return warnings

    # --- contents --------------------------------------------------------------------------

    def _write(self, info: ExportInfo, to: Path, left_out: Collection[str]) -> tuple[str, ...]:
        """Write the parameters first, then the other forms, each of which the model may lack.

        Args:
            info: what the master knows of the model.
            to: an empty directory.
            left_out: forms in which earlier attempts have ended.
        """
        weight_files.save(self.steps.named_values(), to / PARAMETERS)
        states = self.steps.layer_states()
        if states:
            layer_states.save(states, to / layer_states.LAYER_STATES)
        forms = self.steps.export_forms(self.optimizer)
        warnings = [_crashes(info.crashes, form.file) for form in forms if form.file in left_out]
        written = {
            form.file: _form(
                to / form.file, form.save, partial(self._missing_form_warning, form), warnings
            )
            for form in forms
            if form.file not in left_out
        }
        description = replace(
            self._describe(info),
            keras_filename=written.get(trained_model.KERAS, ""),
            saved_model=written.get(trained_model.SAVED_MODEL, ""),
            layer_states_filename=layer_states.LAYER_STATES if states else "",
        )
        warnings += self._copy_zoo(to / MODEL_ZOO)
        (to / trained_model.DESCRIPTION).write_bytes(encode_trained_model(description))
        return tuple(warnings)

    def _missing_form_warning(self, form: ExportForm, error: Exception) -> str:
        return f"{form.failure}: {_shorten(error)}. {self._remaining_use}"

    @property
    def _remaining_use(self) -> str:
        if self.engine.has_call:
            return "edl predict needs only the parameters."
        return "A callback can save a part of it, such as a generator, in on_train_end."

    def _copy_zoo(self, to: Path) -> list[str]:
        """Copy what belongs to the model, and return what cannot be read now."""
        spec, zoo, warnings = self.job.model, Path(self.job.model.model_zoo), []
        names = (getattr(spec, field) for field in zoo_files.NAMING_FIELDS)
        to.mkdir()
        used = [*loaded_files(), *read_files()]
        files = zoo_files.select(zoo, filter(None, names), used)
        for name in files.paths:
            try:
                content = (zoo / name).read_bytes()
            except OSError as error:
                reason = error.strerror or error
                warnings.append(f"The copy of the model zoo has no {name}: {reason}.")
                continue
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            (to / name).write_bytes(content)
        if not files.paths:
            warnings.append(f"There is no copy of the model zoo: {zoo} has no model file any more.")
        return warnings

    def _describe(self, info: ExportInfo) -> TrainedModelDescription:
        spec = self.job.model
        return TrainedModelDescription(
            docker_commit_id=self.job.image,
            model_def=spec.model_def,
            model_def_params=spec.params,
            params_filename=PARAMETERS,
            input_function=spec.input_fn,
            loss=spec.loss,
            optimizer=spec.optimizer,
            dataset_fn=spec.dataset_fn,
            eval_metrics_fn=spec.eval_metrics_fn,
            feature_columns=spec.feature_columns,
            label_columns=spec.label_columns,
            model_zoo=MODEL_ZOO,
            code_sha256=spec.code_sha256,
            seed=self.job.training.seed,
            minibatch_size=self.job.minibatch_size,
            job=self.job.exported_job or self.job.name,
            created_at=rfc3339(time.time(), "seconds"),
            parameter_version=info.parameter_version,
            records_trained=info.records_trained,
            epochs=info.epochs,
            metrics=info.metrics,
            data=info.data,
            versions={
                "edl": metadata.version("edl-worker"),
                **self.engine.versions,
                "python": platform.python_version(),
            },
        )


def _form(
    path: Path,
    save: Save,
    lacks: Lacks,
    warnings: list[str],
) -> str:
    """Save one form of a model; return the name of its file, or nothing and add a warning.

    Raises:
        Exception: it cannot be written here, whatever the model.
    """
    try:
        with note_writing(path):
            save(path)
    except Exception as error:
        if is_about_writing(error):
            raise
        log.warning("%s", lacks(error), exc_info=True)
        warnings.append(lacks(error))
        discard(str(path))
        path.unlink(missing_ok=True)
        return ""
    return path.name


def _crashes(times: int, form: str) -> str:
    return (
        f"The trained model has no {form}: {times} workers ended by themselves when they wrote the "
        "model, as their logs show. edl predict needs only the parameters."
    )


def _shorten(error: Exception) -> str:
    return " ".join(message_of(error).split())[:_MAX_ERROR_CHARACTERS].rstrip(" .,:")


def discard(place: str) -> None:
    """Remove a model that is not wanted any more, as well as that can be done."""
    if not is_uri(place):
        shutil.rmtree(place, ignore_errors=True)
        return
    with contextlib.suppress(Exception):  # a store's client has errors of its own
        system, path = filesystem(place)
        system.rm(path, recursive=True)


def _sync_tree(root: Path) -> None:
    for directory, _, files in os.walk(root, topdown=False):
        for name in files:
            flush(Path(directory) / name)
        flush(Path(directory))
