"""The page of all jobs, served by the command and read as a browser would."""

from __future__ import annotations

import http.cookiejar
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import Edl, eventually

from edl_runtime.identity.page_key import PageKey
from edl_testing.requirements import require_program

WAIT_S = 120.0


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Return None, so that the redirection is an error with its address."""


class Browser:
    """Follows links and keeps cookies, as far as the page needs it."""

    def __init__(self, link: str) -> None:
        self._cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self._opener = urllib.request.build_opener(self._cookies)
        with self._opener.open(link, timeout=WAIT_S) as answer:
            self.home: str = answer.geturl()
            self.page: str = answer.read().decode()

    def leads_to(self, path: str) -> str:
        """Where a link of the page leads, without going there."""
        opener = urllib.request.build_opener(_Stay(), self._cookies)
        with pytest.raises(urllib.error.HTTPError) as caught:
            opener.open(self.home + path, timeout=WAIT_S)
        with caught.value:
            assert caught.value.code == 303
            return str(caught.value.headers["Location"])

    def get(self, path: str) -> str:
        with self._opener.open(self.home + path, timeout=WAIT_S) as answer:
            text: str = answer.read().decode()
        return text

    def jobs(self) -> dict[str, Any]:
        return {job["job"]: job for job in json.loads(self.get("api/jobs"))}


@pytest.fixture
def fleet(tidy: Edl) -> Iterator[subprocess.Popen[str]]:
    """The command, beside one job that is over and one that runs."""
    tidy(*tidy.job("--name", "done"))
    (tidy.place / "out").rmdir()
    tidy.begin("busy")
    child = tidy.start("dashboard", "--all")
    yield child
    child.kill()
    child.communicate()
    tidy("stop", "busy", "--now")


def refusal_code(url: str) -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url, timeout=WAIT_S)
    with caught.value:
        return caught.value.code


def viewers(parent: int) -> list[int]:
    """The living processes that serve pages of jobs that are over."""
    children: list[int] = []
    for file in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            children += map(int, file.read_text().split())
    return [pid for pid in children if b"--view" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_all_jobs_are_on_one_page(tidy: Edl, fleet: subprocess.Popen[str]) -> None:
    assert fleet.stdout is not None
    link = fleet.stdout.readline().strip()
    browser = Browser(link)
    assert "fleet.js" in browser.page
    for name in ("fleet.js", "fleet.css"):
        assert browser.get(name)
    jobs = browser.jobs()
    assert list(jobs) == ["busy", "done"], "the newest first"
    assert (jobs["done"]["state"], jobs["done"]["done"]) == ("SUCCEEDED", 1.0)
    assert (jobs["busy"]["state"], jobs["busy"]["over"]) == ("RUNNING", False)
    assert jobs["done"]["rates"] == []
    eventually(lambda: len(browser.jobs()["busy"]["rates"]) > 1, "the sparkline grows")
    # The name leads to the job's own page, by a link of that page.
    url = tidy("status", "busy", "-o", "json").json["dashboard_url"]
    key = PageKey.read(tidy.job_dir("busy") / "page")
    assert key is not None
    found, _, token = browser.leads_to("job/busy").partition("?token=")
    assert found == url
    assert key.is_fresh_link(token, time.time())

    # That of a job that is over is served from now on, and again if its process has ended.
    assert browser.leads_to("job/done")
    time.sleep(0.5)  # the thread of the request has ended by then
    (first,) = viewers(fleet.pid)
    assert browser.leads_to("job/done")
    assert viewers(fleet.pid) == [first]
    os.kill(first, signal.SIGKILL)
    eventually(lambda: not viewers(fleet.pid), "it is gone")
    # A process that ends is seen as such a moment after it has lost its command line.
    eventually(
        lambda: bool(browser.leads_to("job/done") and viewers(fleet.pid)), "another one serves it"
    )
    assert len(viewers(fleet.pid)) == 1

    # No request is accepted without the link, nor with it once it is used.
    assert refusal_code(browser.home) == 403
    assert refusal_code(browser.home + "api/jobs") == 403
    assert refusal_code(link) == 403
    with pytest.raises(urllib.error.HTTPError) as caught:
        browser.get("job/unknown")
    with caught.value:
        assert "there is no job named unknown" in caught.value.read().decode()

    # A damaged job is there with its message, hides no other, and comes back.
    spec = tidy.job_dir("busy") / "spec.json"
    whole = spec.read_bytes()
    spec.write_text("{")
    eventually(lambda: browser.jobs()["busy"]["state"] == "UNREADABLE", "the page shows it")
    jobs = browser.jobs()
    assert list(jobs) == ["busy", "done"]
    assert jobs["busy"]["error"]["code"] == "DATA_DAMAGED"
    assert "edl delete busy" in jobs["busy"]["error"]["remedy"]
    assert jobs["done"]["error"] is None
    assert jobs["done"].keys() == jobs["busy"].keys()
    spec.write_bytes(whole)
    eventually(lambda: browser.jobs()["busy"]["state"] == "RUNNING", "it can be read again")

    fleet.send_signal(signal.SIGINT)
    assert fleet.wait(WAIT_S) == 0


def test_a_name_or_all(tidy: Edl) -> None:
    for args in ((), ("mine", "--all")):
        done = tidy.run("dashboard", *args)
        assert done.code == 2
        assert "--all" in done.err


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/-/healthy", timeout=WAIT_S).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_prometheus_outlives_the_command(tidy: Edl, number: signal.Signals) -> None:
    require_program("prometheus", "prometheus")
    # Under nohup, children would ignore SIGHUP, too.
    ours = signal.getsignal(number)
    if number is not signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    try:
        child = tidy.start("dashboard", "--all", "--prometheus")
    finally:
        if number is not signal.SIGKILL:
            signal.signal(number, ours)
    assert child.stderr is not None
    url = child.stderr.readline().split()[-1]
    eventually(lambda: answers(url), "Prometheus answers")
    child.send_signal(number)
    child.communicate(timeout=WAIT_S)
    if number is signal.SIGKILL:
        eventually(lambda: not answers(url), "Prometheus is gone")
        return
    assert child.returncode == 0
    assert not answers(url)
