"""``edl data convert`` with real servers of stores: there and back, and killed on its way."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
from conftest import COMMAND, ROOT, read_all
from store_proxy import StoreProxy
from store_servers import GoogleServer, S3Server, StoreServer

import elasticdl
import recordio.example
from edl.app import job_submitter
from edl.core.options import Given, Verb
from edl_convert.writer import FileLayout

pytestmark = pytest.mark.product

BUCKET = "kept"
ROWS = 100
TABLE = "town,x,y\n" + "".join(f"{'Rom' if n % 2 else 'Ulm'},{n},{n}.5\n" for n in range(ROWS))


@pytest.fixture(params=[GoogleServer, S3Server], ids=["gs", "s3"])
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    make: Callable[[str], StoreServer] = request.param
    server = make(BUCKET)
    yield server
    server.stop()


@pytest.fixture
def proxy(
    server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StoreProxy]:
    """Run a proxy that the clients of this process and of its children take for the server."""
    proxy = StoreProxy(server.url)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value.replace(server.url, proxy.url))
    monkeypatch.chdir(tmp_path)
    fsspec.get_filesystem_class(server.scheme).clear_instance_cache()
    Path("t.csv").write_text(TABLE)
    yield proxy
    proxy.close()


def test_a_table_goes_to_a_store_is_found_with_its_schema_and_comes_back(
    server: StoreServer, proxy: StoreProxy
) -> None:
    place = f"{server.scheme}://{BUCKET}/rows"
    server.system.put_file("t.csv", f"{BUCKET}/tables/t.csv")
    layout = FileLayout(records_per_file=40, split=0.8)
    done = elasticdl.convert_data(
        f"{server.scheme}://{BUCKET}/tables/*.csv", label="y", output=place, layout=layout
    )
    assert done.output == place
    there = [path.removeprefix(f"{BUCKET}/rows/") for path in server.system.find(f"{BUCKET}/rows")]
    assert sorted(there) == sorted(
        ["schema.json", *(str(file).removeprefix(f"{place}/") for file in done.files)]
    )
    written = json.loads(server.system.cat_file(f"{BUCKET}/rows/schema.json"))
    assert written == done.schema
    assert written["rows"] == ROWS

    options = {
        "model_zoo": str(ROOT / "model_zoo"),
        "model_def": "regressor.DNN",
        "data": [f"{place}/train"],
        "output": "model",
    }
    flags = {name: Given(value, name) for name, value in options.items()}
    plan = job_submitter().prepare(Verb.TRAIN, flags)
    assert plan.schema == f"{place}/schema.json"
    assert json.dumps(ROWS) in plan.job.params

    back = elasticdl.convert_data([f"{place}/train", f"{place}/test"], output="back.recordio")
    assert back.schema is not None
    assert back.schema["rows"] == ROWS
    values = [recordio.example.decode(record)["label"][0] for record in read_all("back.recordio")]
    assert sorted(values) == [number + 0.5 for number in range(ROWS)]


def has_data(server: StoreServer) -> bool:
    """Whether all files but the last one are there."""
    return bool(server.system.exists(f"{BUCKET}/rows/part-00003.recordio"))


def test_what_a_killed_conversion_left_is_replaced_by_the_same_command(
    server: StoreServer, proxy: StoreProxy
) -> None:
    place = f"{server.scheme}://{BUCKET}/rows"
    convert = ("data", "convert", "t.csv", "--records-per-file", "30", "--to", place)
    running: list[subprocess.Popen[bytes]] = []

    def kill(method: str, path: str) -> int | None:
        if method in ("PUT", "POST") and has_data(server):
            running[0].kill()
            return 500
        return None

    proxy.fault = kill
    running.append(subprocess.Popen([COMMAND, *convert]))
    assert running[0].wait(100) == -9
    proxy.fault = lambda method, path: None
    left = server.system.find(f"{BUCKET}/")
    assert f"{BUCKET}/.rows.edl-convert" in left
    assert f"{BUCKET}/rows/part-00003.recordio" in left
    subprocess.run([COMMAND, *convert], check=True, capture_output=True)
    names = [f"part-{number:05d}.recordio" for number in range(4)]
    there = server.system.find(f"{BUCKET}/")
    assert there == [f"{BUCKET}/rows/{name}" for name in (*names, "schema.json")]
    records = [recordio.example.decode(record)["x"][0] for record in read_all(place)]
    assert records == list(range(ROWS))
