"""Benchmarks are run by hand, so what they are made of is tried here: nothing is timed."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

import elasticdl_data
import elasticdl_zoo
import zoo_quality
from results_file import ResultsFile

import recordio
import recordio.example
from bench.__main__ import names
from bench.measure import run_module
from edl_proto.v1 import job_pb2


@pytest.mark.parametrize("name", names())
def test_a_benchmark_can_be_loaded(name: str) -> None:
    assert callable(importlib.import_module(f"bench.{name}").measures)


def test_the_peer_without_metrics_has_none() -> None:
    import bench.peers.unmeasured_edl as peer

    code = "from edl_worker.metrics import WorkerMetrics; m = WorkerMetrics()\n"
    code += "m.steps.inc(); print(m.counters())"
    place = str(Path(peer.__file__).with_name("unmeasured"))
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            text=True,
            stdout=subprocess.PIPE,
            env={**os.environ, **changes},
        ).stdout
        for changes in ({}, {"PYTHONPATH": place})
    ]
    assert "edl_worker_steps_total" in said[0]
    assert said[1] == "{}\n"


def test_the_peer_without_a_timeline_has_none() -> None:
    import bench.peers.untimed_edl as peer

    code = "from edl_master.reporting.timeline_recorder import TimelineRecorder as T; "
    code += "print({getattr(T, n).__name__ for n in ('record_lease', 'record_end', 'flush')})"
    place = str(Path(peer.__file__).with_name("untimed"))
    said = subprocess.run(
        [sys.executable, "-c", code, "edl_master"],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": place},
    ).stdout
    assert said == "{'_nothing'}\n"


def test_the_threads_of_a_master_can_be_counted() -> None:
    tool = Path(__file__).parents[1] / "tools/master_threads.py"
    command = [sys.executable, str(tool), "--workers", "3", "--seconds", "1"]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert found["threads"] > 1
    assert found["failed_calls"] == found["crashed_workers"] == 0


def test_a_difference_is_as_probable_as_its_signs_are() -> None:
    from bench.quality import probability

    assert probability([0.0, 0.0]) == 1.0
    assert probability([0.01] * 5) == 2 / 2**5
    assert probability([0.03, -0.01, -0.02]) == 1.0


def test_the_server_of_benchmarks_answers_their_workers() -> None:
    from bench.embeddings import Client
    from bench.transport import Worker

    dim, floats = 4, 100
    with run_module("bench.peers.plane_server", str(dim), str(floats), "Adam") as line:
        worker = Worker(*line.split(), 4 * floats)
        worker.push()
        worker.pull()
        worker.push()
        half = Worker(*line.split(), 4 * floats, job_pb2.BFLOAT16)
        half.pull()
    with run_module("bench.peers.plane_server", str(dim)) as line:
        client = Client(*line.split(), dim)
        for number in range(3):
            client.pull(number)
            client.push(number)
        for number in range(4):
            client.exchange(number)


@pytest.mark.product
@pytest.mark.parametrize(
    ("servers", "model"), [(0, (64, 4, 1)), (2, (1_000, 0, 1)), (2, (64, 4, 26))]
)
def test_workers_that_compute_nothing_push_to_any_number_of_servers(
    servers: int, model: tuple[int, int, int]
) -> None:
    from bench.servers import Deployment

    with ExitStack() as stack:
        deployment = Deployment(stack, servers, model, 2)
        for workers in (1, 2):
            sample = deployment.push(workers, 0.05)
            assert sample.gb_per_s > 0
            assert sample.push_ms > 0


def test_a_later_call_goes_on_from_the_results_of_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    first = ResultsFile(path, ("model", "seed"))
    assert first.find(model="a", seed=1) is None
    first.add({"value": 0.5}, model="a", seed=1)
    first.add({"value": 0.7}, model="a", seed=2)
    first.add({"value": 0.6}, model="a", seed=1)
    second = ResultsFile(path, ("model", "seed"))
    found = second.find(seed=1, model="a")
    assert found is not None
    assert found["value"] == 0.6
    assert found["commit"]
    assert second.find(model="a", seed=3) is None
    assert len(path.read_text().splitlines()) == 3


RESULTS = Path(__file__).parents[1] / "bench" / "results"


def test_each_model_of_the_zoo_has_learned_in_each_measured_run() -> None:
    """Each model ran from ten seeds, with one and three workers, in both update modes."""
    results = ResultsFile(RESULTS / "zoo_quality.jsonl", ("model", "workers", "update", "seed"))
    for model, trial in zoo_quality.ZOO.items():
        for (workers, update), seed in itertools.product(zoo_quality.MODES, range(10)):
            run = {"model": model, "workers": workers, "update": update, "seed": seed}
            found = results.find(**run)
            assert found is not None, run
            assert found["metric"] == trial.metric
            assert trial.has_learned(found["value"]), found


def test_kills_were_measured_to_cost_no_quality() -> None:
    """Ten seeds ran with and without kills, for enough epochs to learn the digits."""
    results = ResultsFile(RESULTS / "quality.jsonl", ("update", "seed", "kills"))
    for update, seed, kills in itertools.product(("async", "sync"), range(10), (0, 8)):
        found = results.find(update=update, seed=seed, kills=kills)
        assert found is not None, (update, seed, kills)
        assert found["accuracy"] > 0.97


def test_a_metric_or_the_loss_says_how_far_a_model_is_from_chance() -> None:
    chance = {"loss": math.log(4), "accuracy": 0.25, "probs_auc": 0.5}
    assert elasticdl_zoo.progress(chance, 4) == pytest.approx(0)
    for name, perfect in (("loss", 0), ("accuracy", 1), ("probs_auc", 1)):
        assert elasticdl_zoo.progress({**chance, name: perfect}, 4) == pytest.approx(1)
    assert elasticdl_zoo.progress({"loss": -50.0, "dummy_metric": 9.0}, 4) == 0


def test_files_of_elasticdl_that_only_help_others_are_not_trained(tmp_path: Path) -> None:
    for name in ("cifar10/data_parser.py", "cifar10/cifar10_subclass.py", "mnist/mnist_train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert elasticdl_zoo.files_of(tmp_path) == ["cifar10/cifar10_subclass"]


IRIS = "odps_iris_dnn_model/odps_iris_dnn_model"


@pytest.mark.parametrize("file", ["mnist/mnist_subclass", "deepctr/wdl", IRIS])
def test_data_for_elasticdls_files_have_as_many_of_each_label(file: str, tmp_path: Path) -> None:
    """An accuracy above that of chance then means that a model has learned."""
    chosen = elasticdl_data.trial(tmp_path / f"{file}.py", tmp_path)
    assert chosen is not None
    records = chosen.write(tmp_path)
    labels = list(_labels(tmp_path / "train"))
    assert len(labels) == records
    counts = Counter(labels)
    assert len(counts) == chosen.classes
    assert min(counts.values()) > 0.8 * records / chosen.classes


def _labels(folder: Path) -> Iterator[int]:
    for path in folder.iterdir():
        if path.suffix == ".csv":
            yield from (int(line.rpartition(",")[2]) for line in path.read_text().splitlines()[1:])
            continue
        source = recordio.open_source(str(path))
        for record in source.read(0, source.count()):
            yield int(recordio.example.decode(record)["label"][0])


def test_the_page_counts_what_was_measured_of_elasticdls_files() -> None:
    page = (Path(__file__).parents[1] / "docs" / "elasticdl.md").read_text()
    lines = (RESULTS / "elasticdl_zoo.jsonl").read_text().splitlines()
    newest = {(row["state"], row["file"]): row for row in map(json.loads, lines)}
    for state in {state for state, _ in newest}:
        rows = [row for (its, _), row in newest.items() if its == state]
        trained = [row for row in rows if row["trained"]]
        assert all(row["records_trained"] == row["records"] * row["epochs"] for row in trained)
        assert all(row["message"] for row in rows if not row["trained"])
        learned = sum(row["learned"] for row in trained)
        assert f"| `{state}` | {len(rows)} | {len(trained)} | {learned} |" in page, state
