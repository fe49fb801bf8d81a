"""A Prometheus of this machine that reads the metrics of its jobs, found through files.

Each job has a token of its own, so each has a scrape configuration; a new one is read on SIGHUP.
The port of a job is in a file of targets, which Prometheus reads again when it changes. Its rules
and alerts are those of deploy/prometheus, of which this package has a copy.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import importlib.resources
import json
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml

from edl.plugins.backends import StatusReport
from edl.plugins.files import tail
from edl.plugins.job_status import ERROR_LINES
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.files import replace_file
from edl_runtime.identity.page_key import metrics_token_file
from edl_runtime.local import job_directory
from edl_runtime.local.parent_process import ending_with_parent
from edl_runtime.monitoring.log_lines import readable

_HOST = "127.0.0.1"
_START_S = 120.0
"""Prometheus reads all samples since its last block before it answers."""
_POLL_S = 0.1
_LEAVE_S = 10.0
_ANSWER_S = 2.0
_RETENTION = "15d"


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """The place from which Prometheus reads the metrics of a job.

    Attributes:
        job: its name.
        address: host and port.
        token_file: what Prometheus says to get them.
    """

    job: str
    address: str
    token_file: Path


def scrape_target(report: StatusReport) -> ScrapeTarget | None:
    """Return where the metrics of a job of this machine are; None once nothing serves them.

    A job that is not over keeps its target while it has no master, so that Prometheus sees that.
    """
    recorded = "" if report.is_over else report.status.dashboard_url
    url = report.dashboard_url or recorded
    token_file = metrics_token_file(Path(report.location) / job_directory.PAGE)
    if not url or not token_file.exists():
        return None
    return ScrapeTarget(report.status.job, urlsplit(url).netloc, token_file)


class Prometheus:
    """A process for as long as the context lasts; its samples stay in the folder.

    Args:
        folder: for configuration and data; made if it is not there.
        interval_s: between two scrapes, and between two evaluations of the rules, in whole seconds.

    Raises:
        EdlError: SYSTEM; Prometheus is not installed, or, when the context begins, another process
            has the folder, or it does not come up.
    """

    def __init__(self, folder: Path, interval_s: int = 5) -> None:
        binary = shutil.which("prometheus")
        if binary is None:
            raise EdlError(
                ErrorCode.SYSTEM,
                "Prometheus is not installed",
                where="PATH",
                remedy="Install it (Debian: apt install prometheus), or omit --prometheus.",
            )
        self._binary = binary
        self._folder = folder
        self._targets = folder / "targets"
        self._rules = folder / "rules.yml"
        self._log = folder / "prometheus.log"
        self._interval_s = interval_s
        self._jobs: dict[str, ScrapeTarget] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._opened = ExitStack()
        self._stale = False
        self.url = ""
        """Where it answers while it runs."""

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self._take(opened)
            self._start(opened)
            self._await()
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _take(self, opened: ExitStack) -> None:
        """Have the folder for this process alone."""
        self._targets.mkdir(0o700, parents=True, exist_ok=True)
        lock = opened.enter_context((self._folder / "lock").open("w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EdlError(
                ErrorCode.SYSTEM,
                "another edl dashboard --all --prometheus runs on this machine",
                where=str(self._folder),
                remedy="Use its Prometheus, which reads the metrics of all jobs, or end it first;"
                " without --prometheus any number of pages can be served.",
            ) from None

    def _start(self, opened: ExitStack) -> None:
        for old in self._targets.glob("*.json"):
            old.unlink()
        rules = importlib.resources.files("edl_watch") / "prometheus_rules" / "rules.yml"
        replace_file(self._rules, rules.read_bytes())
        self._write_configuration()
        with socket.create_server((_HOST, 0)) as probe:
            port = probe.getsockname()[1]
        self.url = f"http://{_HOST}:{port}"
        with self._log.open("wb") as log:
            command = [
                *(self._binary, f"--config.file={self._folder / 'prometheus.yml'}"),
                *(f"--storage.tsdb.path={self._folder / 'data'}", "--log.level=warn"),
                f"--storage.tsdb.retention.time={_RETENTION}",
                f"--web.listen-address={_HOST}:{port}",
                # By default it lets every web site that the user visits read all metrics.
                f"--web.cors.origin={re.escape(self.url)}",
            ]
            self._process = subprocess.Popen(
                # It has no password: a killed command must not leave it behind.
                ending_with_parent(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        opened.callback(_end, self._process)

    def _await(self) -> None:
        """Wait until it answers."""
        assert self._process is not None
        deadline = time.monotonic() + _START_S
        while not self._is_ready():
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline:
                late = f"has not answered within {_START_S:.0f} s"
                raise self._failure(
                    late if code is None else f"has ended with code {code}",
                    "See the end of its log below, or omit --prometheus.",
                )
            time.sleep(_POLL_S)

    def follow(self, targets: Iterable[ScrapeTarget]) -> None:
        """Scrape these jobs from now on, and no others; to be called every few seconds.

        Raises:
            EdlError: SYSTEM; Prometheus has ended.
        """
        if self._process is not None and (code := self._process.poll()) is not None:
            raise self._failure(
                f"has ended with code {code}",
                "See the end of its log below, and start this command again.",
            )
        now = {target.job: target for target in targets}
        for gone in self._jobs.keys() - now.keys():
            (self._targets / f"{gone}.json").unlink(missing_ok=True)
        for job, target in now.items():
            if self._jobs.get(job) != target:
                found = [{"targets": [target.address], "labels": {"edl_job": job}}]
                content = json.dumps(found).encode()
                replace_file(self._targets / f"{job}.json", content)
        if self._jobs.keys() != now.keys():
            self._stale = True
        self._jobs = now
        if self._stale and self._process is not None and self._is_ready():
            self._write_configuration()
            self._process.send_signal(signal.SIGHUP)
            self._stale = False

    def follow_jobs(self, reports: Iterable[StatusReport]) -> None:
        """Read the metrics of these jobs, as far as they serve any, and of no others."""
        found = map(scrape_target, reports)
        self.follow(target for target in found if target is not None)

    def _failure(self, what: str, remedy: str) -> EdlError:
        return EdlError(
            ErrorCode.SYSTEM,
            f"Prometheus {what}",
            where=str(self._log),
            remedy=remedy,
            detail=readable(tail(self._log, ERROR_LINES)),
        )

    def _is_ready(self) -> bool:
        """Before that, it does not know the signal, and would end."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=_ANSWER_S) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except (OSError, http.client.HTTPException):
            return False

    def _write_configuration(self) -> None:
        machine = socket.gethostname()
        scrapes: list[dict[str, Any]] = [
            {
                "job_name": job,
                "authorization": {"credentials_file": str(target.token_file)},
                "file_sd_configs": [{"files": [str(self._targets / f"{job}.json")]}],
                "relabel_configs": [{"target_label": "namespace", "replacement": machine}],
            }
            for job, target in sorted(self._jobs.items())
        ]
        interval = f"{self._interval_s}s"
        configuration = {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": [str(self._rules)],
            "scrape_configs": scrapes,
        }
        text = yaml.safe_dump(configuration, sort_keys=False)
        replace_file(self._folder / "prometheus.yml", text.encode())


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_LEAVE_S)
    process.kill()
    process.wait()
