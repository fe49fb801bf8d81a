"""Debian's Prometheus, started by a test on the loopback, and asked through its HTTP API."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conftest import eventually

from tests.monitoring.tools import find

_ANSWER_S = 200


@dataclass(frozen=True)
class Prometheus:
    """A running server.

    Attributes:
        url: of its API.
        started: in seconds since 1970.
    """

    url: str
    started: float = field(default_factory=time.time)

    def values(self, query: str) -> list[float]:
        """Every value that a query has had since the start; NaN is none.

        Raises:
            AssertionError: Prometheus refuses the query.
        """
        return [value for _, points in self.series(query) for _, value in points]

    def series(self, query: str) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """The labels of each series of a query since the start, and its times and values.

        Raises:
            AssertionError: Prometheus refuses the query.
        """
        now = time.time()
        # No more than a thousand points.
        step = max(1.0, (now - self.started) / 1000)
        found = self._ask("query_range", query=query, start=self.started, end=now, step=step)
        return [
            (
                series["metric"],
                [(at, n) for at, text in series["values"] if not math.isnan(n := float(text))],
            )
            for series in found["result"]
        ]

    def now(self, query: str) -> dict[str, float]:
        """The newest values of a query by its only label, or by all labels."""
        found = self._ask("query", query=query)["result"]
        return {",".join(each["metric"].values()): float(each["value"][1]) for each in found}

    def find_fired_alerts(self, since: float = 0.0) -> set[str]:
        """Return the names of all alerts that have fired since a time in seconds since 1970."""
        start, now = max(since, self.started), time.time()
        found = self._ask(
            "query_range",
            query='max by (alertname) (ALERTS{alertstate="firing"})',
            start=start,
            end=max(now, start),
            step=max(1.0, (now - start) / 1000),
        )
        return {series["metric"]["alertname"] for series in found["result"]}

    def rules(self) -> list[dict[str, Any]]:
        """All rules, with how their last evaluation went."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> dict[str, str]:
        """Health of each target by its job, or what is wrong with it."""
        found = self._ask("targets")["activeTargets"]
        return {each["scrapePool"]: each["lastError"] or each["health"] for each in found}

    def _ask(self, what: str, **parameters: Any) -> Any:
        address = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=_ANSWER_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()) from None


@contextlib.contextmanager
def running(place: Path, port: int) -> Iterator[Prometheus]:
    """Prometheus with ``place/prometheus.yml``, until the block ends."""
    log = place / "prometheus.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [
                find("prometheus"),
                f"--config.file={place / 'prometheus.yml'}",
                f"--storage.tsdb.path={place / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        server = Prometheus(f"http://127.0.0.1:{port}")
        eventually(lambda: process.poll() is not None or _is_ready(server), "Prometheus answers")
        assert process.poll() is None, log.read_text()
        yield server
    finally:
        process.terminate()
        process.wait()


def _is_ready(server: Prometheus) -> bool:
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"{server.url}/-/ready", timeout=_ANSWER_S).close()
        return True
    return False
