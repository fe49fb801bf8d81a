"""Writes the trained model: everything that evaluation, prediction and serving need."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import tempfile
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from edl_worker.codec.jobs import encode_trained_model
from edl_worker.core.job import JobDescription
from edl_worker.core.model_description import TrainedModelDescription
from edl_worker.core.tasks import ExportInfo
from edl_worker.model_file import ModelFile
from edl_worker.tasks import trained_model, weight_files
from edl_worker.tasks.prediction import named_outputs
from edl_worker.tasks.task_errors import is_about_writing, writing_failed
from edl_worker.tensorflow_internals import without_default_signature

log = logging.getLogger(__name__)

_NOT_COPIED = shutil.ignore_patterns(
    "__pycache__", "*.pyc", ".git", ".hg", ".svn", ".venv", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".ipynb_checkpoints", ".*.edl-*.tmp",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exporter:
    """Writes a model with its present values.

    Attributes:
        job: what was submitted.
        model_file: the model, with the values to write.
        input_spec: specification of a minibatch's features, any size.
    """

    job: JobDescription
    model_file: ModelFile
    input_spec: Any

    def export(self, info: ExportInfo, place: str) -> None:
        """Write the model to a place of this task's own; the master makes the output of it.

        Args:
            info: what the master knows of the model.
            place: a directory to make; a path, or the URI of a place in a store.

        Raises:
            EdlError: OUTPUT_UNWRITABLE or DISK_FULL; nothing is left behind.
        """
        try:
            if is_in_store(place):
                self._export_to_store(info, place)
            else:
                self._export_here(info, Path(place))
        except Exception as error:
            discard(place)
            if is_about_writing(error):
                raise writing_failed(error, self.job.output or place) from error
            raise

    def _export_here(self, info: ExportInfo, place: Path) -> None:
        place.mkdir(parents=True)
        self._write(info, place, leave_out=(Path(self.job.output).absolute(), place))
        _sync_tree(place)
        _sync(place.parent)

    def _export_to_store(self, info: ExportInfo, place: str) -> None:
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(place)
        with tempfile.TemporaryDirectory(prefix="edl-export-") as folder:
            local = Path(folder)
            self._write(info, local, leave_out=(local,))
            filesystem.put(f"{local}/", path, recursive=True)

    # --- contents --------------------------------------------------------------------------

    def _write(self, info: ExportInfo, to: Path, leave_out: tuple[Path, ...]) -> None:
        model = self.model_file.model
        weight_files.save(weight_files.of_model(model), to / trained_model.PARAMETERS)
        has_keras = _save_keras(model, to / trained_model.KERAS)
        self._save_for_serving(to / trained_model.SAVED_MODEL)
        zoo = Path(self.job.model.model_zoo)
        shutil.copytree(
            zoo,
            to / trained_model.MODEL_ZOO,
            ignore=_leaving_out(leave_out),
            ignore_dangling_symlinks=True,
        )
        description = self._describe(info, has_keras)
        (to / trained_model.DESCRIPTION).write_bytes(encode_trained_model(description))

    def _describe(self, info: ExportInfo, has_keras: bool) -> TrainedModelDescription:
        spec = self.job.model
        return TrainedModelDescription(
            docker_commit_id=self.job.image,
            model_def=spec.model_def,
            model_def_params=spec.params,
            params_filename=trained_model.PARAMETERS,
            input_function=spec.input_fn,
            loss=spec.loss,
            optimizer=spec.optimizer,
            dataset_fn=spec.dataset_fn,
            eval_metrics_fn=spec.eval_metrics_fn,
            feature_columns=spec.feature_columns,
            label_columns=spec.label_columns,
            model_zoo=trained_model.MODEL_ZOO,
            minibatch_size=self.job.minibatch_size,
            job=self.job.name,
            created_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            parameter_version=info.parameter_version,
            records_trained=info.records_trained,
            epochs=info.epochs,
            metrics=info.metrics,
            versions={
                "edl": metadata.version("edl-worker"),
                "tensorflow": tf.__version__,
                "keras": keras.__version__,
                "python": platform.python_version(),
            },
            keras_filename=trained_model.KERAS if has_keras else "",
            saved_model=trained_model.SAVED_MODEL,
        )

    def _save_for_serving(self, to: Path) -> None:
        """A SavedModel whose signature takes a minibatch of features as the pipeline makes it."""
        model = self.model_file.model
        names = list(getattr(model, "output_names", ()) or ())

        def serve(features: Any) -> dict[str, Any]:
            return named_outputs(self.model_file.call(features, training=False), names)

        archive = keras.export.ExportArchive()
        archive.track(model)
        archive.add_endpoint("serve", serve, input_signature=[_with_names(self.input_spec, model)])
        with without_default_signature():
            archive.write_out(str(to), verbose=False)


def _save_keras(model: keras.Model, path: Path) -> bool:
    try:
        model.save(path)
    except Exception as error:
        if is_about_writing(error):
            raise
        # A subclassed model whose constructor takes what Keras cannot write down.
        log.warning(
            "the output has no %s, since Keras cannot save this model: %s; "
            "give it get_config(), or use the parameters or the SavedModel",
            *(path.name, str(error).strip().splitlines()[0] if str(error) else repr(error)),
        )
        path.unlink(missing_ok=True)
        return False
    return True


def _with_names(spec: Any, model: keras.Model) -> Any:
    """Names for the signature's inputs; a single tensor is called as the model's input is."""
    if isinstance(spec, dict):
        return {
            name: tf.TensorSpec(part.shape, part.dtype, name=name)
            if isinstance(part, tf.TensorSpec)
            else part
            for name, part in spec.items()
        }
    if isinstance(spec, tf.TensorSpec):
        inputs = getattr(model, "input_names", None) or ["features"]
        return tf.TensorSpec(spec.shape, spec.dtype, name=inputs[0])
    return spec


def _leaving_out(paths: tuple[Path, ...]) -> Any:
    left_out = {str(path) for path in paths}

    def ignore(directory: str, found: list[str]) -> set[str]:
        names = set(_NOT_COPIED(directory, found))
        return names | {
            name for name in found if os.path.abspath(os.path.join(directory, name)) in left_out
        }

    return ignore


def is_in_store(place: str) -> bool:
    """Whether the place is a URL of an object store, and not a local path."""
    return "://" in place


def discard(place: str) -> None:
    """Remove a model that is not wanted any more, as well as that can be done."""
    if not is_in_store(place):
        shutil.rmtree(place, ignore_errors=True)
        return
    import fsspec

    with contextlib.suppress(Exception):  # a store's client has errors of its own
        filesystem, path = fsspec.core.url_to_fs(place)
        filesystem.rm(path, recursive=True)


def _sync_tree(root: Path) -> None:
    for directory, _, files in os.walk(root, topdown=False):
        for name in files:
            _sync(Path(directory) / name)
        _sync(Path(directory))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
