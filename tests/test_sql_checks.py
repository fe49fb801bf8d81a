"""What real databases refuse, and where, before a job starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import ROOT, Done

from tests.database_commands import Call, commands_in, convert, examples, types
from tests.database_servers import Server, execute


@pytest.fixture
def edl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    return commands_in(tmp_path, monkeypatch, capfd)


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
        ("looker", "p", "lacks a required privilege"),
        (
            "looker",
            "q",
            "must own the table" if server.kind == "postgresql" else "lacks a required privilege",
        ),
        (
            "updater",
            "q",
            "must own the table" if server.kind == "postgresql" else "lacks a required privilege",
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
    assert "lacks a required privilege" in done.err
    convert(edl, server.url(), "SELECT * FROM guarded ORDER BY id")
    assert examples("out") == [{"id": [1]}, {"id": [2]}], "nothing was written"
    assert list(types()) == ["id", "p"], "no column was added"
