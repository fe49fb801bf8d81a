"""What the scrape configuration for Kubernetes makes of pods.

Debian's Prometheus cannot ask Kubernetes, so a list of pods with their labels takes its place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from conftest import ROOT

from edl_kubernetes.cluster import objects
from tests.monitoring.tools import promtool

CONFIG = ROOT / "deploy" / "kubernetes" / "monitoring" / "scrape-config.yaml"
INSTANCE = f"pod_label_{objects.LABEL_JOB}".replace(".", "_").replace("/", "_")


def pod(port: str, phase: str = "Running", **more: str) -> dict[str, Any]:
    """A target as Prometheus finds it, for one port of a pod."""
    facts = {"pod_container_port_name": port, "pod_phase": phase, "namespace": "team", **more}
    labels = {f"__meta_kubernetes_{name}": value for name, value in facts.items()}
    return {"targets": ["10.0.0.1:7072"], "labels": labels}


def find_targets(scrape: str, pods: list[dict[str, Any]], tmp_path: Path) -> list[dict[str, str]]:
    """Return the labels of each target that a scrape config keeps, without those of all targets."""
    config = yaml.safe_load(CONFIG.read_text())
    for each in config["scrape_configs"]:
        del each["kubernetes_sd_configs"]
        each["static_configs"] = pods
    written = tmp_path / "prometheus.yml"
    written.write_text(yaml.safe_dump(config))
    said = promtool("check", "service-discovery", "--timeout=1s", str(written), scrape)
    left = [target["labels"] for target in json.loads(said) if target["labels"]]
    return [{key: value for key, value in one.items() if key[0] != "_"} for one in left]


def test_masters_are_scraped_at_their_pages_while_they_run(tmp_path: Path) -> None:
    of_job = {INSTANCE: "clicks"}
    pods = [
        pod("page", **of_job),
        pod("grpc", **of_job),
        pod("page", phase="Succeeded", **of_job),
        pod("page", phase="Failed", **of_job),
    ]
    assert find_targets("edl-masters", pods, tmp_path) == [
        {
            "job": "edl-masters",
            "instance": "10.0.0.1:7072",
            "namespace": "team",
            "edl_job": "clicks",
        }
    ]


def test_the_builder_is_scraped_at_its_port_of_metrics(tmp_path: Path) -> None:
    pods = [pod("metrics"), pod("grpc"), pod("metrics", phase="Failed")]
    assert find_targets("edl-builder", pods, tmp_path) == [
        {"job": "edl-builder", "instance": "10.0.0.1:7072", "namespace": "team"}
    ]
