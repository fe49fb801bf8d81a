"""Jobs whose data and results are in object stores: real servers, the clients that people have."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, Edl
from store_servers import GoogleServer, S3Server, StoreServer

import recordio
import recordio.example
from edl_proto.v1 import model_pb2

TRAIN = """elasticdl train \\
    --model_zoo=$HOME/work \\
    --model_def=fintech.MyKerasModel \\
    --input_fn=fintech.credit_data_processor \\
    --params="hidden_units=[10, 100, 20, 5], learning_rate=0.01" \\
    --data="gs://bucket-name/tony/imagenet/train/*.recordio" \\
    --output="gs://bucket-name/tony/my_trained_model"
"""
PREDICT = """elasticdl predict \\
    --data="gs://bucket-name/tony/imagenet/test/*.recordio" \\
    --trained_model="gs://bucket-name/tony/my_trained_model" \\
    --output="gs://bucket-name/tony/imagenet-eval/"
"""
"""The documents' two command lines, word for word."""

BUCKET = "bucket-name"
FILES, RECORDS = 3, 40


@pytest.fixture(params=[GoogleServer, S3Server], ids=["gs", "s3"])
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    make: Callable[[str], StoreServer] = request.param
    server = make(BUCKET)
    yield server
    server.stop()


def write_credits(server: StoreServer, folder: str, here: Path) -> None:
    """Write files of records to the store: a score that follows from income and debt."""
    chance = np.random.default_rng(1)
    for number in range(FILES):
        path = here / f"{number}.recordio"
        with recordio.Writer(str(path)) as writer:
            for _ in range(RECORDS):
                income, debt = chance.uniform(0, 1, 2)
                credit = {"income": income, "debt": debt, "score": income - debt}
                writer.write(
                    recordio.example.encode(
                        {name: np.array([value], np.float32) for name, value in credit.items()}
                    )
                )
        server.system.put_file(str(path), f"{BUCKET}/{folder}/{number}.recordio")


def test_the_documents_command_lines_word_for_word(
    edl: Edl, tmp_path: Path, server: StoreServer
) -> None:
    write_credits(server, "tony/imagenet/train", tmp_path)
    write_credits(server, "tony/imagenet/test", tmp_path)
    shutil.copytree(ROOT / "tests" / "seeds" / "fintech", tmp_path / "work" / "fintech")
    edl.env |= {"HOME": str(tmp_path), **server.environment}
    for lines in (TRAIN, PREDICT):
        edl.shell(lines.replace("gs://", f"{server.scheme}://"), cwd=tmp_path)

    trained = model_pb2.TrainedModel.FromString(
        server.system.cat_file(f"{BUCKET}/tony/my_trained_model/trained_model.pb")
    )
    assert trained.model_def == "fintech.MyKerasModel"
    assert trained.records_trained == FILES * RECORDS
    there = server.system.find(f"{BUCKET}/tony")
    zoo = [path.rpartition("/")[2] for path in there if "my_trained_model/model_zoo/" in path]
    assert sorted(zoo) == ["inputs.py", "models.py"], "what the model needs, and no more"
    for number in range(FILES):
        predictions = tmp_path / f"predictions-{number}"
        server.system.get_file(f"{BUCKET}/tony/imagenet-eval/{number}.recordio", str(predictions))
        assert recordio.open_source(str(predictions)).count() == RECORDS
    assert not [path for path in there if ".tmp" in path or "/." in path]
