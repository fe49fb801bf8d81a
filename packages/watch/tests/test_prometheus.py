"""Prometheus finds the jobs of a machine, with the token of each, and follows them."""

from __future__ import annotations

import http.server
import json
import os
import socket
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edl.core.job_status import JobState, JobStatus, Verb
from edl.ports.job_backend import StatusReport
from edl_proto.errors import EdlError
from edl_runtime.identity.page_key import metrics_token_file
from edl_runtime.local import job_directory
from edl_testing.requirements import require_program
from edl_testing.waiting import eventually
from edl_watch.prometheus import Prometheus, ScrapeTarget, scrape_target


class Metrics:
    """The metrics of one job.

    Attributes:
        asked: what each scraper said to get them.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        metrics = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                metrics.asked.append(self.headers.get("Authorization", ""))
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(b"edl_master_start_timestamp_seconds 1\n")
                self.wfile.write(b"edl_snapshot_last_success_timestamp_seconds 0\n")

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def ask(prometheus: Prometheus, what: str) -> Any:
    """Return what the API of Prometheus answers."""
    with urllib.request.urlopen(f"{prometheus.url}/api/v1/{what}", timeout=200) as answer:
        return json.load(answer)["data"]


@pytest.fixture
def metrics() -> Iterator[list[Metrics]]:
    found = [Metrics(), Metrics(), Metrics()]
    yield found
    for each in found:
        each.close()


def test_jobs_are_found_and_followed(tmp_path: Path, metrics: list[Metrics]) -> None:
    require_program("prometheus", "prometheus")
    first, moved, second = metrics
    of = {each.address: each for each in metrics}

    def target(job: str, at: Metrics) -> ScrapeTarget:
        token = tmp_path / f"{job}-token"
        token.write_text(f"token-of-{job}")
        return ScrapeTarget(job, at.address, token)

    with Prometheus(tmp_path / "prometheus", interval_s=1) as prometheus:

        def is_scraped(*targets: ScrapeTarget) -> Callable[[], bool]:
            def look() -> bool:
                prometheus.follow(targets)
                return all(f"Bearer token-of-{t.job}" in of[t.address].asked for t in targets)

            return look

        eventually(is_scraped(target("one", first)), "the job is scraped")
        # It was resumed and has another port; meanwhile another job began.
        eventually(is_scraped(target("one", moved), target("two", second)), "both jobs are scraped")

        def groups() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = ask(prometheus, "rules")["groups"]
            return found

        def snapshots() -> dict[str, str]:
            found = ask(prometheus, "query?query=edl:snapshot_age_seconds")["result"]
            return {each["metric"]["edl_job"]: each["metric"]["namespace"] for each in found}

        machine = socket.gethostname()
        eventually(
            lambda: snapshots() == {"one": machine, "two": machine}, "the rules see both jobs"
        )
        for origin, granted in ((prometheus.url, prometheus.url), ("http://evil.test", None)):
            request = urllib.request.Request(
                f"{prometheus.url}/api/v1/rules", headers={"Origin": origin}
            )
            with urllib.request.urlopen(request, timeout=200) as answer:
                assert answer.headers["Access-Control-Allow-Origin"] == granted
        rules = [rule for group in groups() for rule in group["rules"]]
        assert {rule["health"] for rule in rules} == {"ok"}
        alerts = {rule["name"] for rule in rules if rule["type"] == "alerting"}
        assert {"EdlJobStalled", "EdlJobCrashLoop", "EdlSnapshotOld"} <= alerts
        process = prometheus._process
    assert process is not None
    assert process.poll() is not None, "it ends with its context"


@pytest.mark.parametrize(
    ("state", "served", "found"),
    [
        (JobState.RUNNING, "http://127.0.0.1:2/", "127.0.0.1:2"),
        (JobState.RUNNING, "", "127.0.0.1:1"),
        (JobState.SUCCEEDED, "http://127.0.0.1:2/", "127.0.0.1:2"),
        (JobState.SUCCEEDED, "", ""),
    ],
)
def test_a_job_without_a_master_keeps_its_target_until_it_is_over(
    tmp_path: Path, state: JobState, served: str, found: str
) -> None:
    token = metrics_token_file(tmp_path / job_directory.PAGE)
    token.parent.mkdir()
    token.write_text("token")
    status = JobStatus("one", Verb.TRAIN, state, dashboard_url="http://127.0.0.1:1/")
    report = StatusReport(
        status=status,
        answered=False,
        location=str(tmp_path),
        keep_page_s=0.0,
        dashboard_url=served,
        page_link=str,
        description=dict,
        details=dict,
    )
    assert scrape_target(report) == (ScrapeTarget("one", found, token) if found else None)


_STAND_IN = """#!{python}
import http.server, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if {broken}:
    sys.exit("opening storage failed")
[port] = [int(it.rpartition(":")[2]) for it in sys.argv if it.startswith("--web.listen-address")]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, *, broken: bool = False) -> None:
    """A program that is found as Prometheus, and answers at once, or ends."""
    program = folder / "prometheus"
    program.write_text(_STAND_IN.format(python=sys.executable, broken=broken))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_a_second_one_is_refused_and_spoils_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch)
    folder = tmp_path / "metrics"
    with Prometheus(folder) as first:
        first.follow([ScrapeTarget("one", "127.0.0.1:1", tmp_path / "token")])
        before = {path: path.stat().st_ino for path in folder.rglob("*")}
        with pytest.raises(EdlError, match="another edl dashboard"), Prometheus(folder):
            pytest.fail("two processes have the folder")
        assert before == {path: path.stat().st_ino for path in folder.rglob("*")}
        assert first._is_ready()
    with Prometheus(folder):
        """The folder is free again."""


def test_one_that_does_not_come_up_is_reported_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, broken=True)
    with pytest.raises(EdlError, match="has ended with code 1") as caught:
        Prometheus(tmp_path / "metrics").__enter__()
    assert caught.value.detail == "opening storage failed"


def test_one_that_ends_later_is_reported_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch)
    with Prometheus(tmp_path / "metrics") as prometheus:
        prometheus.follow([])
        assert prometheus._process is not None
        (tmp_path / "metrics" / "prometheus.log").write_text("out of memory\n")
        prometheus._process.kill()
        prometheus._process.wait()
        with pytest.raises(EdlError, match="has ended with code -9") as caught:
            prometheus.follow([])
    assert caught.value.where == str(tmp_path / "metrics" / "prometheus.log")
    assert caught.value.detail == "out of memory"


def test_without_prometheus_a_person_hears_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EdlError) as caught:
        Prometheus(tmp_path)
    assert "--prometheus" in caught.value.remedy
