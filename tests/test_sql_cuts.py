"""Connections break and commands are killed at many places; a repetition makes it whole."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND, Done
from tcp_relay import TcpRelay

import recordio
import recordio.example
from edl.__main__ import run
from edl.core.exit_numbers import INTERRUPTED
from edl.core.job_result import JobResult
from tests.database_servers import PASSWORD, USER, Server, execute

Call = Callable[..., Done]
ROWS = 20_000
NUMBERS = {
    "postgresql": f"SELECT i AS id FROM generate_series(1, {ROWS}) AS i",
    "mysql": f"SELECT seq AS id FROM seq_1_to_{ROWS}",
}
"""For each kind of server, a query of the numbers from 1 to ``ROWS``."""
PREDICTIONS = 1_000
CUTS = 6
"""Places where a connection breaks, spread over all that it carries."""


@pytest.fixture
def relay(server: Server) -> Iterator[TcpRelay]:
    """Between the command and the server."""
    name = {"postgresql": ".s.PGSQL.5432", "mysql": "socket"}[server.kind]
    relay = TcpRelay(("127.0.0.1", 0), str(server.folder / name))
    yield relay
    relay.cut()


@pytest.fixture
def url(server: Server, relay: TcpRelay) -> str:
    return f"{server.kind}://{USER}:{PASSWORD}@127.0.0.1:{relay.port}/edl"


@pytest.fixture
def edl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    def call(*args: str) -> Done:
        capfd.readouterr()
        done = Done(args, run(args), *capfd.readouterr())
        assert PASSWORD not in done.out + done.err
        return done

    return call


def places(total: int) -> list[int]:
    return [max(1, total * part // CUTS) for part in range(CUTS)]


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_conversion_that_is_cut_leaves_nothing_and_is_repeated(
    edl: Call, server: Server, relay: TcpRelay, url: str
) -> None:
    def convert(to: str) -> Done:
        return edl("data", "convert", "--from", url, "--query", NUMBERS[server.kind], "--to", to)

    assert convert("whole.recordio").code == 0
    whole = sorted(os.listdir("."))
    for place in places(relay.carried):
        relay.carried, relay.cut_at = 0, place
        done = convert("again.recordio")
        assert done.code == 3, str(done)
        assert "cannot be reached, or has closed the connection" in done.err
        gc.collect()  # where a driver would complain about rows that were not fetched
        assert sorted(os.listdir(".")) == whole
        relay.restore()
    relay.cut_at = sys.maxsize
    assert convert("again.recordio").code == 0
    source = recordio.open_source("again.recordio")
    ids = [recordio.example.decode(record)["id"][0] for record in source.read(0, source.count())]
    assert ids == list(range(1, ROWS + 1))


SLEEP = "SELECT pg_sleep(600) AS x"


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_ctrl_c_on_a_line_that_is_dead_prints_no_line_of_the_driver(
    edl: Call, relay: TcpRelay, url: str
) -> None:
    """psycopg logs that it cannot cancel the query, to stderr unless it is told where."""
    convert = ("data", "convert", "--from", url, "--query", SLEEP, "--to", "out")
    relay.holds = lambda piece: b"DECLARE" in piece
    with subprocess.Popen([COMMAND, *convert], stderr=subprocess.PIPE, text=True) as running:
        assert relay.held.wait(100)
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=100)
    assert told == "\ninterrupted\n"
    assert running.returncode == INTERRUPTED


def kill_where(relay: TcpRelay, holds: Callable[[bytes], bool], *args: str) -> None:
    """Kill a command while what it sends or gets is held back; the server sees it leave."""
    relay.holds = holds
    with subprocess.Popen([COMMAND, *args], stderr=subprocess.PIPE, text=True) as running:
        while not relay.held.wait(0.02):
            assert running.poll() is None, running.stderr and running.stderr.read()
        running.kill()
    relay.holds = lambda piece: False
    relay.held.clear()
    relay.cut()
    relay.restore()


def test_a_conversion_that_is_killed_is_repeated(
    edl: Call, server: Server, relay: TcpRelay, url: str
) -> None:
    convert = ("data", "convert", "--from", url, "--query", NUMBERS[server.kind], "--to", "out")
    kill_where(relay, lambda piece: relay.carried > 100_000, *convert)
    assert not Path("out").exists()
    assert edl(*convert).code == 0
    source = recordio.open_source("out/part-00000.recordio")
    ids = [recordio.example.decode(record)["id"][0] for record in source.read(0, source.count())]
    assert ids == list(range(1, ROWS + 1))


def write_predictions(place: str) -> None:
    with recordio.Writer(place) as writer:
        for number in range(PREDICTIONS):
            row = {"id": number, "prediction": number * 0.5}
            writer.write(recordio.example.encode(row))


def make_table(server: Server, table: str) -> None:
    rows = ", ".join(f"({number})" for number in range(PREDICTIONS))
    execute(
        server,
        f"CREATE TABLE {table} (id INT PRIMARY KEY)",
        f"INSERT INTO {table} VALUES {rows}",
    )


def read_predictions(edl: Call, server: Server, table: str) -> list[Any]:
    """Return the predictions in a table by id, read without the relay."""
    query = f"SELECT * FROM {table} ORDER BY id"
    done = edl("data", "convert", "--from", server.url(), "--query", query, "--to", "now.recordio")
    assert done.code == 0, str(done)
    source = recordio.open_source("now.recordio")
    rows = [recordio.example.decode(record) for record in source.read(0, source.count())]
    for file in Path().glob("now.*"):
        file.unlink()
    assert [row["id"][0] for row in rows] == list(range(PREDICTIONS))
    return [row["predicted"][0] if "predicted" in row else None for row in rows]


def test_a_column_that_is_cut_is_there_with_all_values_or_none(
    edl: Call, server: Server, relay: TcpRelay, url: str
) -> None:
    write_predictions("p.recordio")
    complete = [number * 0.5 for number in range(PREDICTIONS)]

    def load(table: str) -> Done:
        return edl(
            *("data", "load", "--from", "p.recordio", "--to", url, "--table", table),
            *("--column", "predicted", "-o", "json"),
        )

    make_table(server, "cut_whole")
    assert load("cut_whole").code == 0
    for number, place in enumerate(places(relay.carried)):
        table = f"cut_{number}"
        make_table(server, table)
        relay.carried, relay.cut_at = 0, place
        done = load(table)
        assert done.code == 3, str(done)
        assert "cannot be reached, or has closed the connection" in done.out
        assert read_predictions(edl, server, table) in ([None] * PREDICTIONS, complete)
        relay.cut_at = sys.maxsize
        relay.restore()
        done = load(table)
        assert done.code == 0, str(done)
        assert (done.json["rows"], done.json["other_rows"]) == (PREDICTIONS, 0)
        assert read_predictions(edl, server, table) == complete


STAGES = {
    "batches": b"INSERT INTO edl_load",
    "check": b"count(DISTINCT",
    "update": b"UPDATE ",
    "commit": b"COMMIT",
}
"""What a command sends at each stage of loading."""


def test_a_load_that_is_killed_has_written_nothing_and_is_repeated(
    edl: Call, server: Server, relay: TcpRelay, url: str
) -> None:
    write_predictions("p.recordio")
    for stage, sent in STAGES.items():
        table = f"kill_{stage}"
        make_table(server, table)
        load = ("data", "load", "--from", "p.recordio", "--to", url, "--table", table)
        load = (*load, "--column", "predicted", "-o", "json")
        kill_where(relay, lambda piece, sent=sent: sent in piece, *load)
        assert read_predictions(edl, server, table) == [None] * PREDICTIONS, stage
        done = edl(*load)
        assert done.code == 0, str(done)
        assert (done.json["rows"], done.json["other_rows"]) == (PREDICTIONS, 0)
        assert read_predictions(edl, server, table) == [
            number * 0.5 for number in range(PREDICTIONS)
        ]


def test_predictions_wait_for_a_database_that_restarts_during_the_job(
    edl: Call, server: Server, relay: TcpRelay, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(server, "waiting")
    about = {"statement": "", "label": "", "classes": [], "is_classifier": False, "texts": {}}
    Path("models/m").mkdir(parents=True)
    Path("models/m/statement.json").write_text(json.dumps(about))

    def predict(*, output: str, **_: object) -> JobResult:
        write_predictions(output)
        relay.cut()
        return JobResult("job", "SUCCEEDED")

    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            relay.restore()

    monkeypatch.setattr("edl.api.predict", predict)
    monkeypatch.setattr("edl_sql.databases.retries.pause", pause)
    done = edl("sql", "--db", url, "-e", "SELECT id FROM waiting PREDICT waiting.predicted USING m")
    assert done.code == 0, str(done)
    assert len(pauses) == 2
    assert "cannot be reached" in done.err
    assert read_predictions(edl, server, "waiting") == [
        number * 0.5 for number in range(PREDICTIONS)
    ]
