"""Rows of real databases become records."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COMMAND

import recordio
import recordio.example
from tests.database_commands import Call, commands_in, convert, examples, load, predictions, types
from tests.database_servers import PASSWORD, Server, execute

PEAK_OF_MANY_ROWS = 96 << 10  # kB above the peak of one row; the rows take 200 MB


@pytest.fixture
def edl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    return commands_in(tmp_path, monkeypatch, capfd)


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
    # The driver complains here, as the process ends, about rows that were not fetched.
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
    assert "rejected the user name or password" in done.err
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
        (server.url(user="unknown2"), "SELECT 1 AS x", 10, ["user name or password"]),
        (server.url(database="none"), "SELECT 1 AS x", 3, ["no such database", "none"]),
        (server.url(), "SELECT * FROM nowhere", 3, ["no such table", "nowhere"]),
        (server.url(), "SELECT b FROM secret_table", 2, ["no such column"]),
        (server.url(), "SELEKT 1", 2, ["cannot parse the query", "SELEKT"]),
        (server.url(), "DELETE FROM secret_table", 2, []),
        (server.url(), "SELECT a FROM secret_table WHERE a > 9", 3, ["returns no rows"]),
        (
            server.url("guest", "guest-secret"),
            "SELECT * FROM secret_table",
            10,
            ["lacks a required privilege", "secret_table"],
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
        ([good], server.url("reader", "reader-secret"), (), 10, "lacks a required privilege"),
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
