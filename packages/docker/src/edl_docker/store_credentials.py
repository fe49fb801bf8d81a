"""Access to object stores for the containers of one job: files that only they and the user see.

The engine shows a container's variables to all its users, and an image is passed on to others.
So credentials are files in a folder of the job, which containers see read-only; their variables
say where these are, and what is not secret.
"""

from __future__ import annotations

import configparser
import io
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edl.plugins.files import read_input
from edl_proto.v1 import job_pb2
from edl_runtime.local import job_directory
from recordio.kafka.addresses import CONFIG, read_settings

_AWS_KEYS = {
    "AWS_ACCESS_KEY_ID": "aws_access_key_id",
    "AWS_SECRET_ACCESS_KEY": "aws_secret_access_key",
    "AWS_SESSION_TOKEN": "aws_session_token",
}
_AMAZON, _GOOGLE = frozenset(("s3", "s3a")), frozenset(("gs", "gcs"))
_AMAZON_VARIABLES = re.compile(
    "AWS_(DEFAULT_)?REGION|AWS_PROFILE|AWS_ENDPOINT_URL(_S3)?|AWS_MAX_ATTEMPTS"
    "|AWS_(REQUEST|RESPONSE)_CHECKSUM_(CALCULATION|VALIDATION)|AWS_EC2_METADATA_DISABLED"
)
_GOOGLE_VARIABLES = re.compile("GOOGLE_CLOUD_PROJECT|STORAGE_EMULATOR_HOST")
"""Variables without secrets that clients of stores read."""


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """The environment and files by which a container reaches the stores of its job.

    Attributes:
        folder: of files, which it sees under the same path; None if there are none.
        variables: of its environment; none of them is secret.
    """

    folder: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def provide(
    job_dir: Path, spec: job_pb2.JobSpec, environ: Mapping[str, str] = os.environ
) -> StoreAccess:
    """Copy the credentials of the stores that a job names, and of no others, into its directory.

    Files that are there already are replaced; running containers see the new ones.

    Args:
        job_dir: of the job.
        spec: of the job.
        environ: the user's.
    """
    # Whichever field names a place: options for places come and go.
    schemes = {found.lower() for found in re.findall(r'"([A-Za-z0-9]+)://', str(spec))}
    files: dict[str, bytes] = {}
    variables: dict[str, str] = {}
    add = _Adder(job_dir / job_directory.STORES, files, variables)
    for kinds, pattern, add_files in (
        (_AMAZON, _AMAZON_VARIABLES, _add_amazon),
        (_GOOGLE, _GOOGLE_VARIABLES, _add_google),
    ):
        if schemes & kinds:
            add_files(add, environ)
            variables |= {name: text for name, text in environ.items() if pattern.fullmatch(name)}
    if "kafka" in schemes:
        _add_kafka(add, environ)
    _add_fsspec(add, schemes)
    if files:
        if add.folder.is_symlink():  # of an earlier master, which could write into the directory
            add.folder.unlink()
        add.folder.mkdir(mode=0o700, exist_ok=True)
        for name, content in files.items():
            _write(add.folder / name, content)
    return StoreAccess(add.folder if files else None, variables)


def remove(job_dir: Path) -> None:
    """Remove what ``provide`` has made."""
    shutil.rmtree(job_dir / job_directory.STORES, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Adder:
    folder: Path
    files: dict[str, bytes]
    variables: dict[str, str]

    def __call__(self, variable: str, name: str, content: bytes) -> None:
        self.files[name] = content
        self.variables[variable] = str(self.folder / name)


def _add_amazon(add: _Adder, environ: Mapping[str, str]) -> None:
    home = Path(environ.get("HOME", "/nonexistent")) / ".aws"
    if config := _content(environ.get("AWS_CONFIG_FILE") or home / "config"):
        add("AWS_CONFIG_FILE", "aws-config", config)
    given = {key: environ[name] for name, key in _AWS_KEYS.items() if environ.get(name)}
    if "aws_access_key_id" in given:
        keys = configparser.RawConfigParser()
        keys[environ.get("AWS_PROFILE", "default")] = given
        text = io.StringIO()
        keys.write(text)
        content = text.getvalue().encode()
    else:
        content = _content(environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials")
    if content:
        add("AWS_SHARED_CREDENTIALS_FILE", "aws-credentials", content)


def _add_google(add: _Adder, environ: Mapping[str, str]) -> None:
    home = Path(environ.get("HOME", "/nonexistent")) / ".config" / "gcloud"
    folder = Path(environ.get("CLOUDSDK_CONFIG") or home)
    named = environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if content := _content(named or folder / "application_default_credentials.json"):
        add("GOOGLE_APPLICATION_CREDENTIALS", "google-credentials", content)


def _add_kafka(add: _Adder, environ: Mapping[str, str]) -> None:
    settings = read_settings(environ)
    for name, value in settings.items():
        if name.endswith(".location") and (content := _content(value)):
            file = f"kafka-{name}"
            add.files[file] = content
            settings[name] = str(add.folder / file)
    if settings:
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        add(CONFIG, "kafka.properties", lines.encode())


def _add_fsspec(add: _Adder, schemes: set[str]) -> None:
    import fsspec

    # As this process has read them, from files and variables: both may hold secrets.
    chosen = {name: values for name, values in fsspec.config.conf.items() if name in schemes}
    if chosen:
        add("FSSPEC_CONFIG_DIR", "fsspec.json", json.dumps(chosen).encode())
        add.variables["FSSPEC_CONFIG_DIR"] = str(add.folder)


def _content(path: str | Path) -> bytes:
    try:
        return read_input(Path(path))
    except OSError:
        return b""


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(file, "wb") as opened:
        opened.write(content)
    temporary.replace(path)
