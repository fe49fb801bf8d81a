"""Debian's Prometheus scrapes a builder to which bad things happen, as the docs say."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, eventually
from prometheus_client import start_http_server

from edl_master.metrics.observed import Metrics
from edl_master.metrics.processes import CertificateCollector
from edl_proto.identity.folder import IdentityFolder
from edl_proto.identity.names import Role
from tests.monitoring.builder_service import Builder, running_builder
from tests.monitoring.prometheus_server import Prometheus, running
from tests.monitoring.queries import all_queries
from tests.monitoring.shortened_rules import shorten
from tests.monitoring.test_rules import alerts

DOCS = (ROOT / "docs" / "monitoring.md").read_text()
RULES = (ROOT / "deploy" / "prometheus" / "rules.yml").read_text()


@dataclass
class World:
    """A builder, and Prometheus, which asks it each second.

    Attributes:
        targets: files in which Prometheus finds what to scrape.
    """

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
        eventually(lambda: set(alerts) <= self.prometheus.fired(), f"{alerts} fire", every=0.5)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    place = tmp_path_factory.mktemp("monitoring")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running_builder(place / "builder") as builder:
        configure(place, builder)
        with running(place, port) as prometheus:
            yield World(builder, prometheus, place / "targets")


def configure(place: Path, builder: Builder) -> None:
    """Prometheus' files, as the docs give them; there is no job."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", DOCS, re.S | re.M)
    config: dict[str, Any] = yaml.safe_load(blocks[0])
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
    port = f"127.0.0.1:{builder.app.metrics_port}"
    (targets / "edl-builder.yml").write_text(blocks[2].replace("127.0.0.1:8322", port))


def test_alerts_of_a_builder_fire(world: World) -> None:
    builder = world.builder
    eventually(lambda: world.prometheus.now("edl_image_build_failures_total"), "a scrape")
    assert builder.build("registry.test/good") == "DONE"
    assert builder.build("elsewhere.test/refused") == "StatusCode.PERMISSION_DENIED"
    failed = [builder.fail(f"registry.test/bad/{number}") for number in range(4)]
    assert failed == ["StatusCode.ABORTED"] * 4
    with builder.queue(8):
        world.fires("EdlBuildFailures", "EdlBuilderQueueLong")
        builder.engine.down = True
    world.fires("EdlBuilderNotReady")


def test_an_alert_fires_when_a_certificate_is_near_its_end(world: World, tmp_path: Path) -> None:
    """It lives for three hours, as no job's does."""
    folder = IdentityFolder(tmp_path / "identity", "short", timedelta(hours=3))
    folder.create([(Role.MASTER, None)])
    metrics = Metrics()
    metrics.add(CertificateCollector(folder.first_expiry))
    http, thread = start_http_server(0, "127.0.0.1", metrics.registry)
    try:
        world.scrape("short-lived", f"127.0.0.1:{http.server_port}", edl_job="short")
        world.fires("EdlCertificateNearEnd")
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def test_every_query_about_builders_has_data(world: World) -> None:
    about = {where: query for where, query in all_queries() if where.startswith("builder: ")}
    assert len(about) > 10
    assert not {where for where, query in about.items() if not world.prometheus.values(query)}


def test_prometheus_evaluates_every_rule(world: World) -> None:
    def states() -> dict[str, str]:
        rules = world.prometheus.rules()
        return {rule["name"]: rule.get("lastError") or rule["health"] for rule in rules}

    eventually(lambda: "unknown" not in states().values(), "all rules were evaluated")
    assert set(states().values()) == {"ok"}, states()
    assert {alert["alert"] for alert in alerts()} <= states().keys()
