"""Debian's Prometheus scrapes a job and a builder to which bad things happen, as the docs say."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, Edl, MakeEdl, eventually, leaving_no_process

from tests.monitoring.builder_service import Builder, running_builder
from tests.monitoring.dashboard_pictures import draw
from tests.monitoring.prometheus_server import Prometheus, running
from tests.monitoring.queries import DASHBOARDS, all_queries
from tests.monitoring.shortened_rules import shorten
from tests.monitoring.test_rules import alerts
from tests.monitoring.tools import find
from tests.monitoring.troubled_job import NAME, TroubledJob
from tests.ports import free_port

DOCS = (ROOT / "docs" / "monitoring.md").read_text()
RULES = (ROOT / "deploy" / "prometheus" / "rules.yml").read_text()

EMPTY = {
    "job: Requests to Kubernetes {{verb}} {{code}}": "the job's workers are processes",
}
"""Queries that have no data in these tests, and why."""


@dataclass
class World:
    """A job, a builder, and Prometheus, which asks both each second.

    Attributes:
        edl: the commands of the job's owner.
        targets: files in which Prometheus finds what to scrape.
    """

    edl: Edl
    job: TroubledJob
    builder: Builder
    prometheus: Prometheus
    targets: Path

    def scrape(self, name: str, target: str, **labels: str) -> None:
        """Have one more target scraped, which Prometheus finds by a file."""
        entry = [{"targets": [target], "labels": {"namespace": "laptop", **labels}}]
        written = self.targets / "new"
        written.write_text(yaml.safe_dump(entry))
        written.rename(self.targets / f"{name}.yml")

    def fires(self, *alerts: str) -> None:
        """Wait until they have."""
        eventually(lambda: self.has_fired(*alerts), f"{alerts} fire", every=0.5)

    def has_fired(self, *alerts: str) -> bool:
        return set(alerts) <= self.prometheus.find_fired_alerts()

    def is_training(self) -> bool:
        return any(self.prometheus.now('edl_workers{state="working"}').values())

    def log(self, name: str) -> str:
        """Return a log in the job's directory."""
        return (self.edl.job_dir(NAME) / "logs" / name).read_text()

    def panel(self, title: str) -> dict[str, float]:
        """Return the values that a panel of the dashboards shows now, by its legend."""
        shown: dict[str, float] = {}
        for where, query in all_queries():
            if where.partition(": ")[2].startswith(f"{title} "):
                shown |= {
                    f"{where} {key}": value for key, value in self.prometheus.now(query).items()
                }
        return shown

    def incarnations(self) -> int:
        """How many masters of the job have been scraped."""
        query = "count(count by (incarnation) (last_over_time(edl_job_info[1h])))"
        return int(max(self.prometheus.values(query), default=0))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, make_edl: MakeEdl) -> Iterator[World]:
    find("prometheus")  # or there are no tests, and no job is needed
    place = tmp_path_factory.mktemp("monitoring")
    edl = make_edl(place / ".edl")
    with leaving_no_process(edl), running_builder(place / "builder") as builder:
        job = TroubledJob(edl, place)
        try:
            configure(place, job, builder)
            with running(place, free_port()) as prometheus:
                yield World(edl, job, builder, prometheus, place / "targets")
        finally:
            job.stop()


def configure(place: Path, job: TroubledJob, builder: Builder) -> None:
    """Prometheus' files, as the docs give them."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", DOCS, re.S | re.M)
    config: dict[str, Any] = yaml.safe_load(blocks[0].replace("/home/me", str(place)))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"].append("shortened.yml")
    config["scrape_configs"].append(
        {"job_name": "short-lived", "file_sd_configs": [{"files": ["targets/short-lived.yml"]}]}
    )
    for discovery in config["scrape_configs"]:
        discovery["file_sd_configs"][0]["refresh_interval"] = "1s"
    (place / "prometheus.yml").write_text(yaml.safe_dump(config))
    (place / "rules.yml").write_text(RULES)
    (place / "shortened.yml").write_text(shorten(RULES, window=1 / 30, wait=1 / 300))
    targets = place / "targets"
    targets.mkdir()
    (targets / f"{NAME}.yml").write_text(blocks[1].replace("127.0.0.1:8321", job.target))
    port = f"127.0.0.1:{builder.app.metrics_port}"
    (targets / "edl-builder.yml").write_text(blocks[2].replace("127.0.0.1:8322", port))


def readiness(target: str) -> int:
    """The status of a service's answer."""
    try:
        with urllib.request.urlopen(f"http://{target}/readyz", timeout=200) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_alerts_of_a_builder_fire(world: World, caplog: pytest.LogCaptureFixture) -> None:
    builder = world.builder
    eventually(lambda: world.prometheus.now("edl_image_build_failures_total"), "a scrape")
    assert builder.build("registry.test/good") == "DONE"
    assert builder.build("elsewhere.test/refused") == "StatusCode.PERMISSION_DENIED"
    failed = [builder.fail(f"registry.test/bad/{number}") for number in range(4)]
    assert failed == ["StatusCode.ABORTED"] * 4
    with builder.queue(8):
        world.fires("EdlBuildFailures", "EdlBuilderQueueLong")
        # As the runbook says: the log names the caller and the error of each failed build.
        told = [record.getMessage() for record in caplog.records]
        assert sum("of ipv4:127.0.0.1:" in line and "failed, build:" in line for line in told) == 4
        for panel in ("Time of builds", "Results", "Steps from the cache"):
            assert world.panel(panel), panel
        builder.engine.down = True
    world.fires("EdlBuilderNotReady")
    assert readiness(f"127.0.0.1:{builder.app.metrics_port}") == 503
    builder.engine.down = False
    eventually(lambda: readiness(f"127.0.0.1:{builder.app.metrics_port}") == 200, "it is ready")
    assert builder.build("registry.test/again") == "DONE", "it continues by itself"


def test_alerts_of_a_job_fire(world: World) -> None:
    job = world.job
    world.fires("EdlGoodputLow")  # its workers do not get ready
    follow_low_goodput(world)
    job.go_on()
    world.fires("EdlStalenessHigh", "EdlDeadLetters", "EdlSnapshotOld")
    assert readiness(job.target) == 200
    follow_staleness(world)
    follow_dead_letters(world)
    follow_old_snapshot(world)
    job.slow_server_down(lambda: world.has_fired("EdlParameterServersUneven"))
    assert len(world.prometheus.now("edl_parameter_server_cpu_seconds_total")) == 3
    assert all(world.log(f"server-{number}.log") for number in range(3))
    eventually(lambda: world.prometheus.values("edl_evaluation_metric"), "an evaluation")
    job.end_a_worker(signal.SIGABRT)
    eventually(lambda: any(world.prometheus.values("edl_worker_failures_total")), "a crash")
    job.end_a_worker(signal.SIGTERM)
    eventually(lambda: any(world.prometheus.values("edl_worker_preemptions_total")), "it is noted")
    for _ in range(3):
        before = world.incarnations()
        job.kill_master()
        eventually(lambda n=before: world.incarnations() > n, "the next master is scraped")
    world.fires("EdlJobCrashLoop")
    follow_crash_loop(world)
    eventually(world.is_training, "its workers are back")
    job.get_stuck()
    world.fires("EdlJobStalled", "EdlCheckpointOld")
    follow_stalled_job(world)


def follow_low_goodput(world: World) -> None:
    """Check that the panel that the runbook names shows the reason."""
    lost = world.panel("Lost time")
    assert max(lost, key=lambda reason: lost[reason]).endswith("starting"), lost


def follow_staleness(world: World) -> None:
    """Check that the runbook finds the slow one of two workers by its rate."""
    staleness = dict(all_queries())["job: Staleness 99 %"]
    eventually(
        lambda: max(world.prometheus.values(staleness), default=0) > 32, "the panel shows it"
    )

    def rates() -> list[float]:
        workers = world.edl.written_status(NAME)["workers"]
        return [float(each.get("records_per_s", 0)) for each in workers]

    def is_one_slow() -> bool:
        found = sorted(rates())
        return len(found) == 2 and 2 * found[0] < found[1]

    eventually(is_one_slow, "one of two workers is slow")


def follow_dead_letters(world: World) -> None:
    """Look at what the runbook names: the records, the error and the traceback of each task."""
    letters = world.edl.status(NAME)["dead_letters"]
    assert letters
    for letter in letters:
        assert letter["records"], letter
        assert "Traceback" in json.dumps(letter["error"]), letter


def follow_old_snapshot(world: World) -> None:
    """Check that the runbook finds the cause: snapshots are quick, so their interval is long."""
    eventually(lambda: world.panel("Time of snapshots and checkpoints"), "a checkpoint is timed")
    assert "was not stored" not in world.edl("events", NAME).out


def follow_crash_loop(world: World) -> None:
    assert "signal 6" in world.edl("events", NAME).out
    for worker in (0, 1):
        world.edl("logs", NAME, "--worker", str(worker))
    assert world.log("master.log")
    assert "the master has ended" in world.log("supervisor.log")


def follow_stalled_job(world: World) -> None:
    """The runbook tells the cause by the workers' states and the last events."""
    assert "working" in world.edl("status", NAME).out
    events = world.edl("events", NAME).out
    assert "WorkerReady" in events


def test_every_query_has_data(world: World) -> None:
    queries = dict(all_queries())
    assert len(queries) > 70
    empty = {where for where, query in queries.items() if not world.prometheus.values(query)}
    assert empty == EMPTY.keys()
    if folder := os.environ.get("EDL_DASHBOARD_PICTURES"):
        for name in DASHBOARDS:
            draw(world.prometheus, name, Path(folder).absolute())


def test_prometheus_evaluates_every_rule(world: World) -> None:
    def states() -> dict[str, str]:
        rules = world.prometheus.rules()
        return {rule["name"]: rule.get("lastError") or rule["health"] for rule in rules}

    eventually(lambda: "unknown" not in states().values(), "all rules were evaluated")
    assert set(states().values()) == {"ok"}, states()
    assert {alert["alert"] for alert in alerts()} <= states().keys()


def test_alerts_fire_when_masters_and_builders_are_gone(world: World) -> None:
    """The last test, for the next command that looks at the job starts it again."""
    before = time.time()
    world.builder.app.close()

    def both_fire() -> bool:
        world.job.lose_machine()
        return {"EdlMasterDown", "EdlBuilderDown"} <= world.prometheus.find_fired_alerts(before)

    eventually(both_fire, "both fire", every=0.5)
    # As the runbooks say: Prometheus tells why, and the builder continues with its folder of state.
    assert "connection refused" in world.prometheus.targets()["edl-builder"]
    with running_builder(world.builder.state) as again:
        assert readiness(f"127.0.0.1:{again.app.metrics_port}") == 200
        assert again.build("registry.test/good") == "DONE"
    # The next command that looks at the job starts it again.
    world.edl("status", NAME)
    eventually(lambda: world.edl.status(NAME)["state"] == "RUNNING", "the job continues", every=1)
