"""Writes the trained model: everything that evaluation, prediction and serving need."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from google.protobuf.message import DecodeError

from edl_proto import outputs
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, job_pb2, model_pb2, task_pb2
from edl_worker import trained, values
from edl_worker.contract import ModelFile
from edl_worker.failures import is_about_writing, writing_failed
from edl_worker.prediction import named_outputs

log = logging.getLogger(__name__)

_NOT_COPIED = shutil.ignore_patterns(
    "__pycache__", "*.pyc", ".git", ".hg", ".svn", ".venv", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".ipynb_checkpoints",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exporter:
    """Writes a model with its present values.

    Attributes:
        job: what was submitted.
        model_file: the model, with the values to write.
        input_spec: specification of a minibatch's features, any size.
    """

    job: job_pb2.JobSpec
    model_file: ModelFile
    input_spec: Any

    def export(self, info: task_pb2.ExportInfo, token: int) -> None:
        """Write the output directory, which appears whole or not at all.

        Raises:
            EdlError: OUTPUT_EXISTS, OUTPUT_UNWRITABLE or DISK_FULL; nothing is left behind.
        """
        if "://" in info.output and not info.output.startswith("file://"):
            self._export_remote(info, token)
        else:
            self._export_local(info, Path(info.output.removeprefix("file://")), token)

    # --- places ----------------------------------------------------------------------------

    def _export_local(self, info: task_pb2.ExportInfo, output: Path, token: int) -> None:
        output = output.absolute()
        if self._is_done(info, output):
            return
        temporary = output.with_name(f".{output.name}.edl-{token}.tmp")
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            _remove(output.parent.glob(f".{output.name}.edl-*.tmp"))
            temporary.mkdir()
            self._write(info, temporary, leave_out=(output, temporary))
            _sync_tree(temporary)
            if self._is_done(info, output):
                return
            os.rename(temporary, output)
            _sync(output.parent)
        except Exception as error:
            raise _told(error, str(output)) from error
        finally:
            _remove([temporary])

    def _is_done(self, info: task_pb2.ExportInfo, output: Path) -> bool:
        """Whether the output is there, written by an earlier holder of this very task.

        Raises:
            EdlError: something else is there.
        """
        if not os.path.lexists(output):
            return False
        with contextlib.suppress(EdlError, OSError):
            there = trained.open_directory(str(output)).description
            if self._is_this(info, there):
                log.info("%s was written before the last holder of this task was lost", output)
                return True
            if there.job == self.job.name:
                # By this job, before its master died and what came after the snapshot was undone.
                _remove([output])
                return False
        raise _exists(str(output))

    def _export_remote(self, info: task_pb2.ExportInfo, token: int) -> None:
        """Write to a store, where many objects cannot be renamed in one step.

        While they appear, a note beside them names this job; the description comes last. So what
        a killed worker left is known for this job's own, whole or not.
        """
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(info.output.rstrip("/"))
        parent, _, name = path.rpartition("/")
        beside = f"{parent}/.{name}.edl-{token}.tmp"
        note = outputs.note_beside(path)
        local = Path(tempfile.mkdtemp(prefix="edl-export-"))
        try:
            if not self._is_done_remote(info, filesystem, path):
                self._write(info, local, leave_out=(local,))
                description = (local / trained.DESCRIPTION).read_bytes()
                (local / trained.DESCRIPTION).unlink()
                filesystem.put(f"{local}/", beside, recursive=True)
                # Writing took a while: the last holder of this task may have come to its end.
                if not self._is_done_remote(info, filesystem, path):
                    filesystem.pipe_file(note, self.job.name.encode())
                    filesystem.mv(beside, path, recursive=True)
                    filesystem.pipe_file(f"{path}/{trained.DESCRIPTION}", description)
            if filesystem.exists(note):
                filesystem.rm_file(note)
        except Exception as error:
            raise _told(error, info.output) from error
        finally:
            _remove([local])
            with contextlib.suppress(Exception):
                for left in filesystem.glob(f"{parent}/.{name}.edl-*.tmp"):
                    filesystem.rm(left, recursive=True)

    def _is_done_remote(self, info: task_pb2.ExportInfo, filesystem: Any, path: str) -> bool:
        """As ``_is_done``, for a place in a store."""
        filesystem.invalidate_cache()
        if not filesystem.exists(path):
            return False
        there = model_pb2.TrainedModel()
        with contextlib.suppress(OSError, DecodeError):
            there.ParseFromString(filesystem.cat_file(f"{path}/{trained.DESCRIPTION}"))
        if self._is_this(info, there):
            log.info("%s was written before the last holder of this task was lost", info.output)
            return True
        note = outputs.note_beside(path)
        writer = filesystem.cat_file(note).decode() if filesystem.exists(note) else there.job
        if writer != self.job.name:
            raise _exists(info.output)
        filesystem.rm(path, recursive=True)
        return False

    def _is_this(self, info: task_pb2.ExportInfo, there: model_pb2.TrainedModel) -> bool:
        """Whether a model is what this task is to write."""
        mine = (self.job.name, info.parameter_version, info.records_trained)
        return (there.job, there.parameter_version, there.records_trained) == mine

    # --- contents --------------------------------------------------------------------------

    def _write(self, info: task_pb2.ExportInfo, to: Path, leave_out: tuple[Path, ...]) -> None:
        model = self.model_file.model
        values.save(values.of_model(model), to / trained.PARAMETERS)
        has_keras = _save_keras(model, to / trained.KERAS)
        self._save_for_serving(to / trained.SAVED_MODEL)
        zoo = Path(self.job.model.model_zoo)
        shutil.copytree(
            zoo,
            to / trained.MODEL_ZOO,
            ignore=_leaving_out(leave_out),
            ignore_dangling_symlinks=True,
        )
        description = self._describe(info, has_keras)
        (to / trained.DESCRIPTION).write_bytes(description.SerializeToString())

    def _describe(self, info: task_pb2.ExportInfo, has_keras: bool) -> model_pb2.TrainedModel:
        spec = self.job.model
        return model_pb2.TrainedModel(
            docker_commit_id=self.job.image,
            model_def=spec.model_def,
            model_def_params=spec.params,
            params_filename=trained.PARAMETERS,
            input_function=spec.input_fn,
            loss=spec.loss,
            optimizer=spec.optimizer,
            dataset_fn=spec.dataset_fn,
            eval_metrics_fn=spec.eval_metrics_fn,
            feature_columns=spec.feature_columns,
            label_columns=spec.label_columns,
            model_zoo=trained.MODEL_ZOO,
            minibatch_size=self.job.minibatch_size,
            job=self.job.name,
            created_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            parameter_version=info.parameter_version,
            records_trained=info.records_trained,
            epochs=info.epochs,
            metrics=dict(info.metrics),
            versions={
                "edl": metadata.version("edl-worker"),
                "tensorflow": tf.__version__,
                "keras": keras.__version__,
                "python": platform.python_version(),
            },
            keras_filename=trained.KERAS if has_keras else "",
            saved_model=trained.SAVED_MODEL,
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


def _told(error: Exception, output: str) -> Exception:
    return writing_failed(error, output) if is_about_writing(error) else error


def _exists(output: str) -> EdlError:
    return EdlError(
        error_pb2.OUTPUT_EXISTS,
        f"{output} appeared while the job ran",
        where=output,
        remedy="Move it away and submit the job again with --init-from or another --output.",
    )


def _remove(paths: Iterable[Path]) -> None:
    for path in list(paths):
        shutil.rmtree(path, ignore_errors=True)


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
