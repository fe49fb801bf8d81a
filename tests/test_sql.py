"""Rows of real databases become records."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import COMMAND, ROOT, Done

import recordio
import recordio.example
from edl.__main__ import run
from tests import database_servers
from tests.database_servers import PASSWORD, Server, execute

Call = Callable[..., Done]
PEAK_OF_MANY_ROWS = 96 << 10  # kB above the peak of one row; the rows take 200 MB


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Server]]:
    missing = database_servers.missing()
    if missing and not os.environ.get("CI"):
        pytest.skip(f"missing: {missing}")
    with ExitStack() as stack:
        yield {
            "postgresql": stack.enter_context(database_servers.postgresql()),
            "mariadb": stack.enter_context(database_servers.mariadb()),
        }


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Server:
    found: Server = servers[request.param]
    return found


@pytest.fixture
def edl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PGPASSWORD", "PGPASSFILE", "EDL_DATABASE_PASSWORD"):
        monkeypatch.delenv(name, raising=False)

    def call(*args: str, code: int | None = 0) -> Done:
        capfd.readouterr()
        done = Done(args, run(args), *capfd.readouterr())
        assert code is None or done.code == code, str(done)
        assert PASSWORD not in done.out + done.err
        return done

    return call


def convert(edl: Call, url: str, query: str, *args: str, code: int = 0) -> Done:
    return edl("data", "convert", "--from", url, "--query", query, "--to", "out", *args, code=code)


def examples(place: str) -> list[dict[str, Any]]:
    return [
        {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in recordio.example.decode(record).items()
        }
        for file in recordio.expand(place)
        for record in recordio.open_source(file).read(0, recordio.open_source(file).count())
    ]


def types(place: str = "out") -> dict[str, tuple[str, int]]:
    schema = json.loads(Path(place, "schema.json").read_text())
    return {each["name"]: (each["type"], each["nulls"]) for each in schema["columns"]}


def test_types_of_postgresql(edl: Call, servers: dict[str, Server]) -> None:
    row = (
        "true AS b, 1::smallint AS i, 9223372036854775807 AS big, 1.5::real AS r, 2.5::float8 AS d,"
        " 3.70::numeric AS n, 'Köln %'::text AS t, 'x'::char(2) AS c, '\\x00ff'::bytea AS raw,"
        " date '1970-01-03' AS day, timestamp '1970-01-01 00:00:01' AS naive,"
        " timestamptz '1970-01-01 01:00:00+01' AS zoned, ARRAY[1,2] AS ids,"
        " '00000000-0000-0000-0000-000000000007'::uuid AS u"
    )
    nulls = ", ".join(["NULL"] * 14)
    convert(edl, servers["postgresql"].url(), f"SELECT {row} UNION ALL SELECT {nulls}")
    one, none = examples("out")
    assert none == {}
    assert one.pop("n") == pytest.approx([3.7])
    assert one == {
        "b": [1],
        "i": [1],
        "big": [2**63 - 1],
        "r": [1.5],
        "d": [2.5],
        "t": ["Köln %".encode()],
        "c": [b"x "],
        "raw": [b"\0\xff"],
        "day": [2],
        "naive": [1_000_000],
        "zoned": [0],
        "ids": [1, 2],
        "u": [b"00000000-0000-0000-0000-000000000007"],
    }
    assert types() == {
        "b": ("boolean", 1),
        "i": ("integer", 1),
        "big": ("integer", 1),
        "r": ("float", 1),
        "d": ("float", 1),
        "n": ("decimal", 1),
        "t": ("string", 1),
        "c": ("string", 1),
        "raw": ("bytes", 1),
        "day": ("date", 1),
        "naive": ("timestamp", 1),
        "zoned": ("timestamp", 1),
        "ids": ("integer", 1),
        "u": ("string", 1),
    }


def test_types_of_mariadb(edl: Call, servers: dict[str, Server]) -> None:
    server = servers["mariadb"]
    execute(
        server,
        "CREATE TABLE kinds (b BOOL, i BIGINT, f FLOAT, d DOUBLE, n DECIMAL(9,2), t TEXT, raw BLOB,"
        " day DATE, moment DATETIME, e ENUM('a', 'b'))",
        "INSERT INTO kinds VALUES (TRUE, -5, 1.5, 2.5, 3.70, 'Köln %', x'00ff', '1970-01-03',"
        " '1970-01-01 00:00:01', 'b')",
        "INSERT INTO kinds (b) VALUES (NULL)",
    )
    convert(edl, server.url(), "SELECT * FROM kinds")
    one, none = examples("out")
    assert none == {}
    assert one.pop("n") == pytest.approx([3.7])
    assert one == {
        "b": [1],
        "i": [-5],
        "f": [1.5],
        "d": [2.5],
        "t": ["Köln %".encode()],
        "raw": [b"\0\xff"],
        "day": [2],
        "moment": [1_000_000],
        "e": [b"b"],
    }
    assert {kind for kind, _ in types().values()} == {
        *("integer", "float", "decimal", "string", "bytes", "date", "timestamp")
    }
    assert {nulls for _, nulls in types().values()} == {1}
    convert(edl, server.url(), "SELECT 18446744073709551615 AS x", "--to", "big", code=3)
    execute(
        server,
        "SET sql_mode=''",
        "CREATE TABLE born (day DATE, label VARCHAR(9) CHARACTER SET latin1)",
        "INSERT INTO born VALUES ('1970-01-02', 'yes'), ('1970-01-02', 'Yes')",
        "INSERT INTO born VALUES ('1970-01-02', 'né')",
    )
    query = "SELECT * FROM born; -- all"
    convert(edl, server.url(), query, "--to", "labelled", "--label", "label")
    assert [each["label"] for each in examples("labelled")] == [[2], [0], [1]]
    execute(server, "SET sql_mode=''", "INSERT INTO born VALUES ('0000-00-00', 'no')")
    refused = convert(edl, server.url(), "SELECT day FROM born", "--to", "never", code=3).err
    assert "0000-00-00 is not a valid date or time" in refused
    assert "row 4, column day" in refused


def test_an_error_in_a_row_ends_the_conversion_without_the_other_rows(
    servers: dict[str, Server], tmp_path: Path
) -> None:
    query = "SELECT 18446744073709551615 AS x FROM seq_1_to_1000000"
    url = servers["mariadb"].url()
    done = subprocess.run(
        [COMMAND, "data", "convert", "--from", url, "--query", query, "--to", tmp_path / "out"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "row 1, column x" in done.stderr
    # The driver complains here, as the process ends, about rows that nobody has fetched.
    assert len(done.stderr.splitlines()) == 3, done.stderr


def peak(url: str, query: str, out: str) -> int:
    """The most memory of a conversion, in kB."""
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = [COMMAND, "data", "convert", "--from", url, "--query", query, "--to", out, "-q"]
    done = subprocess.run(
        [sys.executable, "-c", program, *command, "-o", "name", "--records-per-file", "400000"],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    return int(done.stdout.splitlines()[-1])


def test_a_million_rows_are_read_in_constant_memory(
    servers: dict[str, Server], tmp_path: Path
) -> None:
    url = servers["postgresql"].url()
    query = "SELECT i AS id, i * 0.5::float8 AS half FROM generate_series(1, {}) AS i"
    few = peak(url, query.format(1), str(tmp_path / "few"))
    many = peak(url, query.format(1_000_000), str(tmp_path / "many"))
    assert many < few + PEAK_OF_MANY_ROWS
    schema = json.loads((tmp_path / "many" / "schema.json").read_text())
    assert schema["rows"] == 1_000_000
    assert schema["columns"][0]["mean"] == pytest.approx(500_000.5)
    files = recordio.expand(str(tmp_path / "many"))
    assert [recordio.open_source(file).count() for file in files] == [400_000, 400_000, 200_000]


def test_a_cursor_of_mariadb_is_read_in_constant_memory(
    servers: dict[str, Server], tmp_path: Path
) -> None:
    url = servers["mariadb"].url()
    few = peak(url, "SELECT repeat('x', 4000) AS x FROM seq_1_to_1", str(tmp_path / "few"))
    many = peak(url, "SELECT repeat('x', 4000) AS x FROM seq_1_to_50000", str(tmp_path / "many"))
    assert many < few + PEAK_OF_MANY_ROWS


def test_passwords_come_from_files_variables_and_the_drivers(
    edl: Call, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = server.url(password=None)
    done = convert(edl, bare, "SELECT 1 AS x", code=10)
    assert "does not accept user name or password" in done.err
    Path("secret").write_text(f"{PASSWORD}\n")
    Path("secret").chmod(0o600)
    convert(edl, bare, "SELECT 1 AS x", "--password-file", "secret", "--to", "file")
    monkeypatch.setenv("EDL_DATABASE_PASSWORD", PASSWORD)
    convert(edl, bare, "SELECT 1 AS x", "--to", "variable")
    monkeypatch.delenv("EDL_DATABASE_PASSWORD")
    if server.kind == "postgresql":
        Path(".pgpass").write_text(f"*:*:*:*:{PASSWORD}\n")
        Path(".pgpass").chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(Path(".pgpass").absolute()))
    else:
        Path(".my.cnf").write_text(f"[client]\npassword={PASSWORD}\n")
    convert(edl, bare, "SELECT 1 AS x", "--to", "driver")
    assert examples("file") == examples("variable") == examples("driver") == [{"x": [1]}]


def test_what_a_server_refuses_is_said_in_one_message(edl: Call, server: Server) -> None:
    new_user = {
        "postgresql": "CREATE ROLE guest LOGIN PASSWORD 'guest-secret'",
        "mysql": "CREATE USER guest@localhost IDENTIFIED BY 'guest-secret'",
    }[server.kind]
    grant = {"postgresql": [], "mysql": ["GRANT CREATE ON edl.other TO guest@localhost"]}
    execute(server, new_user, *grant[server.kind])
    execute(server, "CREATE TABLE secret_table (a INT)", "INSERT INTO secret_table VALUES (1)")
    cases = [
        (server.url(password="hunter3"), "SELECT 1 AS x", 10, ["user name or password"]),
        (server.url(user="nobody2"), "SELECT 1 AS x", 10, ["user name or password"]),
        (server.url(database="none"), "SELECT 1 AS x", 3, ["no such database", "none"]),
        (server.url(), "SELECT * FROM nowhere", 3, ["no such table", "nowhere"]),
        (server.url(), "SELECT b FROM secret_table", 2, ["no such column"]),
        (server.url(), "SELEKT 1", 2, ["does not understand", "SELEKT"]),
        (server.url(), "DELETE FROM secret_table", 2, []),
        (server.url(), "SELECT a FROM secret_table WHERE a > 9", 3, ["returns no rows"]),
        (
            server.url("guest", "guest-secret"),
            "SELECT * FROM secret_table",
            10,
            ["lacks a privilege", "secret_table"],
        ),
        (server.url(), "SELECT time '01:00:00' AS x", 3, ["row 1, column x", "CAST"]),
    ]
    for url, query, code, words in cases:
        done = convert(edl, url, query, code=code)
        for word in (*words, f"where: {server.kind}://" if "privilege" in words else ""):
            assert word in done.err, done.err
        for secret in ("hunter3", "guest-secret", "Traceback"):
            assert secret not in done.err
        assert not Path("out").exists()
    convert(edl, server.url(), "SELECT a FROM secret_table")
    assert examples("out") == [{"a": [1]}]


def test_predictions_become_a_column(edl: Call, server: Server) -> None:
    execute(
        server,
        'CREATE TABLE testdata (id INT PRIMARY KEY, name VARCHAR(20), "group" INT)'.replace(
            '"', '"' if server.kind == "postgresql" else "`"
        ),
        *(f"INSERT INTO testdata VALUES ({number}, 'n{number}', 1)" for number in range(4)),
    )
    predictions(*({"id": number, "prediction": number * 0.5} for number in range(3)))
    url = server.url()
    first = load(edl, url).json
    assert (first["rows"], first["other_rows"], first["column_added"]) == (3, 1, True)
    assert load(edl, url).json == {**first, "column_added": False}
    convert(edl, url, "SELECT id, predicted_salary FROM testdata ORDER BY id")
    assert examples("out") == [
        {"id": [0], "predicted_salary": [0.0]},
        {"id": [1], "predicted_salary": [0.5]},
        {"id": [2], "predicted_salary": [1.0]},
        {"id": [3]},
    ]
    predictions({"name": "n3", "prediction": 7})
    load(edl, url, "--key", "name", "--column", "votes")
    convert(edl, url, "SELECT votes FROM testdata WHERE votes IS NOT NULL", "--to", "votes")
    assert examples("votes") == [{"votes": [7]}]


def test_what_does_not_fit_a_table_changes_nothing(edl: Call, server: Server) -> None:
    execute(
        server,
        "CREATE TABLE fixed (id INT PRIMARY KEY, twin INT, word VARCHAR(9))",
        "INSERT INTO fixed VALUES (1, 5, 'a'), (2, 5, 'b')",
        {
            "postgresql": "CREATE ROLE reader LOGIN PASSWORD 'reader-secret'",
            "mysql": "CREATE USER reader@localhost IDENTIFIED BY 'reader-secret'",
        }[server.kind],
        "GRANT SELECT ON fixed TO reader" + (" " if server.kind == "postgresql" else "@localhost"),
    )
    if server.kind == "mysql":
        execute(server, "GRANT CREATE TEMPORARY TABLES ON edl.* TO reader@localhost")
    good = {"id": 1, "prediction": 1.5}
    cases = [
        ([good], server.url("reader", "reader-secret"), (), 10, "lacks a privilege"),
        ([good, good], server.url(), (), 3, "two predictions have the same id"),
        ([good, {"id": 3, "prediction": 1.0}], server.url(), (), 3, "1 of 2 predictions"),
        ([{"twin": 5, "prediction": 1}], server.url(), ("--key", "twin"), 3, "is not unique"),
        ([good], server.url(), ("--column", "word"), 2, "is of type VARCHAR"),
        ([good], server.url(), ("--column", "twin"), 2, "is of type INTEGER"),
    ]
    for rows, url, args, code, words in cases:
        predictions(*rows)
        done = load(edl, url, "--table", "fixed", *args, code=code)
        assert words in done.err, done.err
        assert "reader-secret" not in done.err
        convert(edl, server.url(), "SELECT * FROM fixed ORDER BY id", "--to", "now")
        assert examples("now") == [
            {"id": [1], "twin": [5], "word": [b"a"]},
            {"id": [2], "twin": [5], "word": [b"b"]},
        ]
        shutil.rmtree("now")


def predictions(*rows: dict[str, Any]) -> None:
    with recordio.Writer("p.recordio") as writer:
        for row in rows:
            writer.write(recordio.example.encode(row))


def load(edl: Call, url: str, *args: str, code: int = 0) -> Done:
    return edl(
        *("data", "load", "--from", "p.recordio", "--to", url, "--table", "testdata"),
        *("--column", "predicted_salary", "-o", "json", *args),
        code=code,
    )


@pytest.mark.parametrize(
    ("query", "line", "column"),
    [
        ("SELECT id,, name FROM placed", 1, {"postgresql": 11, "mysql": 12}),
        ("\nSELECT id FROM placed\n  WHERE nme > 1 -- ;\n;", 3, 9),
        ("SELECT id, name\nFROM nowhere", 2, 6),
        ("SELECT 'é' AS é, (1 + nme) AS x FROM placed", 1, 23),
        ("WITH p AS (SELECT * FROM placed) SELECT nme FROM p", 1, 41),
    ],
)
def test_the_place_of_a_mistake_in_a_query_is_shown(
    edl: Call, server: Server, query: str, line: int, column: int | dict[str, int]
) -> None:
    execute(
        server,
        "DROP TABLE IF EXISTS placed",
        "CREATE TABLE placed (id INT PRIMARY KEY, name VARCHAR(9))",
    )
    at = column if isinstance(column, int) else column[server.kind]
    told = edl(
        "data", "convert", "--from", server.url(), "--query", query, "--to", "out", code=None
    )
    check_place(told, server, query, line, at)
    zoo = ("--model-zoo", str(ROOT / "model_zoo"))
    before = "SHOW TRAIN m;\n"
    statements = f"{before}{query.removesuffix(';')} TRAIN regressor.DNN INTO n;"
    about = {"statement": "", "label": "", "classes": [], "is_classifier": False, "texts": {}}
    Path("models/m").mkdir(parents=True)
    Path("models/m/statement.json").write_text(json.dumps(about))
    told = edl("sql", "--db", server.url(), *zoo, "-e", statements, code=None)
    check_place(told, server, statements, line + 1, at)


def check_place(told: Done, server: Server, text: str, line: int, column: int) -> None:
    assert told.code in (2, 3), str(told)
    shown = text.split("\n")[line - 1]
    mark = " " * (column - 1) + "^"
    assert f"where: {server.kind}://edl@/edl, line {line}, column {column}\n" in told.err, told.err
    assert f"\n      {shown[: column + 29]}" in told.err, told.err
    assert f"\n      {mark}\n" in told.err, told.err


def test_a_missing_privilege_is_found_before_a_job(
    edl: Call, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = " " if server.kind == "postgresql" else "@localhost"
    new = {"postgresql": "LOGIN PASSWORD", "mysql": "@localhost IDENTIFIED BY"}[server.kind]
    make = {"postgresql": "CREATE ROLE {}", "mysql": "CREATE USER {}"}[server.kind]
    execute(
        server,
        "CREATE TABLE guarded (id INT PRIMARY KEY, p FLOAT)",
        "INSERT INTO guarded VALUES (1, NULL), (2, NULL)",
        "CREATE TABLE scores (model TEXT, evaluated_at TIMESTAMP, row_count BIGINT, loss FLOAT)",
        *(f"{make.format(name)} {new} '{name}-secret'" for name in ("looker", "updater", "owner")),
        *(f"GRANT SELECT ON guarded TO {name}{user}" for name in ("looker", "updater", "owner")),
        f"GRANT UPDATE ON guarded TO updater{user}",
        f"GRANT SELECT ON scores TO looker{user}",
    )
    if server.kind == "mysql":
        for name in ("looker", "updater", "owner"):
            execute(server, f"GRANT CREATE TEMPORARY TABLES ON edl.* TO {name}@localhost")
        execute(server, "GRANT UPDATE, ALTER ON guarded TO owner@localhost")
    else:
        execute(
            server, "GRANT CREATE ON SCHEMA public TO owner", "ALTER TABLE guarded OWNER TO owner"
        )
    about = {"statement": "", "label": "", "classes": [], "is_classifier": False, "texts": {}}
    Path("models/m").mkdir(parents=True)
    Path("models/m/statement.json").write_text(json.dumps(about))
    Path("models/m/trained_model.pb").write_bytes(b"")

    def no_job(**_: object) -> None:
        raise RuntimeError("a job was started")

    monkeypatch.setattr("edl.api.predict", no_job)
    monkeypatch.setattr("edl.api.evaluate", no_job)
    for name, column, refused in (
        ("looker", "p", "lacks a privilege"),
        (
            "looker",
            "q",
            "must own the table" if server.kind == "postgresql" else "lacks a privilege",
        ),
        (
            "updater",
            "q",
            "must own the table" if server.kind == "postgresql" else "lacks a privilege",
        ),
        ("updater", "p", ""),
        ("owner", "q", ""),
    ):
        done = edl(
            *("sql", "--db", server.url(name, f"{name}-secret"), "-e"),
            f"SELECT id FROM guarded PREDICT guarded.{column} USING m",
            code=None,
        )
        assert f"{name}-secret" not in done.err
        if refused:
            assert done.code == 10, str(done)
            assert refused in done.err, done.err
            assert ", line 1, column 32\n" in done.err, done.err
        else:
            assert "a job was started" in done.err, str(done)
    done = edl(
        *("sql", "--db", server.url("looker", "looker-secret"), "-e"),
        "SELECT id, p FROM guarded TO EVALUATE m LABEL p INTO scores",
        code=10,
    )
    assert "lacks a privilege" in done.err
    convert(edl, server.url(), "SELECT * FROM guarded ORDER BY id")
    assert examples("out") == [{"id": [1]}, {"id": [2]}], "nothing was written"
    assert list(types()) == ["id", "p"], "no column was added"
