"""An experiment tracker: MLflow, through its client.

Address, experiment and credentials are those of MLflow's own environment variables.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from edl.plugins.tracking import KerasModel, Measurement, RunEnd, TrackerUnavailable
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.public_settings import without_passwords
from edl_runtime.timestamps import rfc3339

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

_ADDRESS = "MLFLOW_TRACKING_URI"
_JOB, _SUBMITTED, _MODEL = "edl.job", "edl.submitted_at", "edl.model_version"
_MAX_PARAMETERS = 100
_MAX_METRICS = 1000
"""In one call."""
_MAX_VALUE_LENGTH = 6000
_MAX_MESSAGE_LENGTH = 200

_UNREACHABLE = re.compile(r"ConnectionPool\(host='(?P<host>[^']*)', port=(?P<port>\d+)\)")

_IDENTIFIER = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)

_VERSION = re.compile(r"[\w.+!-]{1,50}", re.ASCII)
"""Of a library, for the requirements of a model."""

_OWN_DEFAULTS = {
    # By itself MLflow retries for minutes. edl retries later, and says so at once.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    # MLflow reports its use to its makers unless this is set.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # Stdout is for results.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


def from_environment(environ: Mapping[str, str] = os.environ) -> MlflowTracker:
    """Return the tracker that MLflow's variables name. Asks no server, and imports no MLflow.

    Raises:
        EdlError: USAGE; no server is named.
    """
    address = environ.get(_ADDRESS, "")
    if not address:
        raise EdlError(
            ErrorCode.USAGE,
            f"no MLflow server is named: {_ADDRESS} is not set",
            where="--tracker mlflow",
            remedy=f"export {_ADDRESS}=http://HOST:PORT",
        )
    return MlflowTracker(
        address,
        environ.get("MLFLOW_EXPERIMENT_ID", ""),
        environ.get("MLFLOW_EXPERIMENT_NAME", ""),
    )


class MlflowTracker:
    """Implements ``ExperimentTracker``.

    The run carries the job's name and time of submission as tags, by which every process finds it.

    Args:
        address: of the server.
        experiment_id: of the experiment.
        experiment: its name, which is created if need be; by default MLflow's own default.
    """

    def __init__(self, address: str, experiment_id: str = "", experiment: str = "") -> None:
        self._address = address.rstrip("/")
        self._experiment_id = experiment_id
        self._experiment = experiment or "Default"
        self._run_id = ""
        self._connected: MlflowClient | None = None

    def open(self, job: str, submitted_at: str, started_at_s: float) -> str:
        with _translate():
            client = self._client
            self._experiment_id = self._experiment_id or self._find_experiment()
            found = client.search_runs(
                [self._experiment_id],
                filter_string=f"tags.`{_JOB}` = '{job}' and tags.`{_SUBMITTED}` = '{submitted_at}'",
                order_by=["attributes.start_time ASC", "attributes.run_id ASC"],
                max_results=1,
            )
            run = found[0] if found else self._create(job, submitted_at, started_at_s)
            self._run_id = _identifier(run.info.run_id)
            if found and run.info.status != "RUNNING":
                client.update_run(self._run_id, status="RUNNING")
        where = f"{self._experiment_id}/runs/{self._run_id}"
        web = self._address.startswith(("http://", "https://"))
        address = without_passwords(self._address)
        return f"{address}/#/experiments/{where}" if web else f"{address} ({where})"

    def log_parameters(self, parameters: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        with _translate():
            known = self._run.data.params
            new = [
                Param(name, value[:_MAX_VALUE_LENGTH])
                for name, value in parameters.items()
                if name not in known
            ]
            for start in range(0, len(new), _MAX_PARAMETERS):
                self._client.log_batch(self._run_id, params=new[start : start + _MAX_PARAMETERS])

    def last_steps(self) -> Mapping[str, int]:
        with _translate():
            return {
                name: max(
                    (one.step for one in self._client.get_metric_history(self._run_id, name)),
                    default=-1,
                )
                for name in self._run.data.metrics
            }

    def log_metrics(self, measurements: Sequence[Measurement]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(one.name, one.value, round(one.at_s * 1000), one.step) for one in measurements
        ]
        with _translate():
            for start in range(0, len(metrics), _MAX_METRICS):
                part = metrics[start : start + _MAX_METRICS]
                self._client.log_batch(self._run_id, metrics=part)

    def has_model(self, version: int) -> bool:
        with _translate():
            return bool(self._run.data.tags.get(_MODEL) == str(version))

    def log_model(self, model: KerasModel) -> None:
        from mlflow.entities import LoggedModelOutput, LoggedModelStatus

        with _translate(), tempfile.TemporaryDirectory(prefix="edl-mlflow-") as folder:
            client = self._client
            logged = client.create_logged_model(
                self._experiment_id, name="model", source_run_id=self._run_id
            )
            place = Path(folder)
            write_layout(place, model, self._run_id, logged.model_id)
            client.log_model_artifacts(logged.model_id, str(place))
            client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
            client.log_outputs(self._run_id, [LoggedModelOutput(logged.model_id, model.version)])
            client.set_tag(self._run_id, _MODEL, str(model.version))

    def end(self, end: RunEnd, at_s: float) -> None:
        with _translate():
            self._client.set_terminated(self._run_id, str(end), end_time=round(at_s * 1000))

    @property
    def _client(self) -> MlflowClient:
        if self._connected is not None:
            return self._connected
        if "mlflow" not in sys.modules:  # otherwise the program has settings of its own
            for name, value in _OWN_DEFAULTS.items():
                os.environ.setdefault(name, value)
        from mlflow.tracking import MlflowClient

        self._connected = MlflowClient(self._address)
        return self._connected

    @property
    def _run(self) -> Run:
        return self._client.get_run(self._run_id)

    def _find_experiment(self) -> str:
        found = self._client.get_experiment_by_name(self._experiment)
        if found is not None:
            return _identifier(found.experiment_id)
        return _identifier(self._client.create_experiment(self._experiment))

    def _create(self, job: str, submitted_at: str, started_at_s: float) -> Run:
        return self._client.create_run(
            self._experiment_id,
            start_time=round(started_at_s * 1000),
            run_name=job,
            tags={
                _JOB: job,
                _SUBMITTED: submitted_at,
                "mlflow.user": getpass.getuser(),
                "mlflow.source.name": "edl",
                "mlflow.source.type": "JOB",
            },
        )


@contextmanager
def _translate() -> Iterator[None]:
    """Raise errors of MLflow and the network within the context as ``TrackerUnavailable``."""
    try:
        yield
    except TrackerUnavailable:
        raise
    except Exception as error:  # the client raises its own, those of requests, and plain ones
        raise TrackerUnavailable(_in_short(error)) from error


def _identifier(answered: object) -> str:
    """Return an identifier of a server's answer if it is safe in addresses and texts.

    Raises:
        TrackerUnavailable: it is not.
    """
    text = str(answered)
    if not _IDENTIFIER.fullmatch(text):
        raise TrackerUnavailable(f"it answers with {text[:40]!a} as an identifier")
    return text


def _in_short(error: Exception) -> str:
    text = without_passwords(" ".join(str(error).split())) or type(error).__name__
    if found := _UNREACHABLE.search(text):
        return f"no connection to {found['host']}:{found['port']}"
    return text if len(text) <= _MAX_MESSAGE_LENGTH else text[: _MAX_MESSAGE_LENGTH - 1] + "…"


def write_layout(folder: Path, model: KerasModel, run_id: str, model_id: str) -> None:
    """Write a model with the files that ``mlflow.keras`` and ``mlflow.pyfunc`` load.

    They are those of ``mlflow.keras.save_model``, which would need Keras here.

    Args:
        folder: empty.
    """
    from mlflow.version import VERSION

    data = folder / "data"
    data.mkdir()
    shutil.copyfile(model.file, data / "model.keras")
    (data / "keras_module.txt").write_text("keras")
    # Who wrote the model wrote these, too: no other requirement may hide in one.
    versions = {n: text for n, text in model.versions.items() if _VERSION.fullmatch(text)}
    python = versions.get("python", "")
    described: dict[str, Any] = {
        "artifact_path": "model",
        "flavors": {
            "keras": {
                "data": "data",
                "keras_backend": "tensorflow",
                "keras_version": versions.get("keras", ""),
                "save_exported_model": False,
            },
            "python_function": {
                "env": {"conda": "conda.yaml", "virtualenv": "python_env.yaml"},
                "loader_module": "mlflow.keras",
                "python_version": python,
            },
        },
        "mlflow_version": VERSION,
        "model_id": model_id,
        "model_size_bytes": model.file.stat().st_size,
        "model_uuid": model_id,
        "run_id": run_id,
        "utc_time_created": rfc3339(model.file.stat().st_mtime).rstrip("Z").replace("T", " "),
    }
    needed = [
        f"mlflow=={VERSION}",
        *(f"{name}=={versions[name]}" for name in ("keras", "tensorflow") if versions.get(name)),
    ]
    conda = {
        "name": "mlflow-env",
        "channels": ["conda-forge"],
        "dependencies": [*([f"python={python}"] if python else []), "pip", {"pip": needed}],
    }
    environment = {
        **({"python": python} if python else {}),
        "build_dependencies": ["pip"],
        "dependencies": ["-r requirements.txt"],
    }
    for name, content in (
        ("MLmodel", described),
        ("conda.yaml", conda),
        ("python_env.yaml", environment),
    ):
        (folder / name).write_text(yaml.safe_dump(content, sort_keys=False))
    (folder / "requirements.txt").write_text("\n".join(needed) + "\n")
