"""Which tables and columns of real databases take predictions, found out before a job starts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

import recordio
import recordio.example
from tests.database_commands import Call, commands_in
from tests.database_servers import Server, execute

POSTGRESQL, MYSQL = "postgresql", "mysql"


@pytest.fixture
def edl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    return commands_in(tmp_path, monkeypatch, capfd)


@pytest.fixture
def jobs(edl: Call, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that were started: each predicts 0.5 for the first row, 1.5 for the next …

    The trained model ``m`` is a regressor.
    """
    started: list[str] = []

    def predict(*, data: Sequence[str], keep: Sequence[str], output: str, **_: object) -> None:
        started.append("predict")
        with recordio.Writer(output) as writer:
            number = 0
            for file in recordio.expand(data[0]):
                source = recordio.open_source(file)
                for record in source.read(0, source.count()):
                    features = recordio.example.decode(record)
                    row = {name: features[name] for name in keep}
                    writer.write(recordio.example.encode({**row, "prediction": number + 0.5}))
                    number += 1

    def evaluate(**_: object) -> None:
        started.append("evaluate")
        raise RuntimeError("a job was started")

    monkeypatch.setattr("edl.api.predict", predict)
    monkeypatch.setattr("edl.api.evaluate", evaluate)
    about = {"statement": "", "label": "", "classes": [], "is_classifier": False, "texts": {}}
    Path("models/m").mkdir(parents=True)
    Path("models/m/statement.json").write_text(json.dumps({**about, "model_def": "regressor.DNN"}))
    Path("models/m/trained_model.pb").write_bytes(b"")
    return started


@contextmanager
def connect(server: Server) -> Iterator[sqlalchemy.Connection]:
    driver = {POSTGRESQL: "postgresql+psycopg", MYSQL: "mysql+pymysql"}[server.kind]
    engine = sqlalchemy.create_engine(f"{driver}:{server.url().partition(':')[2]}")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def rows(server: Server, query: str) -> list[tuple[Any, ...]]:
    with connect(server) as connection:
        found = connection.exec_driver_sql(query, execution_options={"no_parameters": True})
        return [tuple(row) for row in found]


def sql(edl: Call, server: Server, statement: str, *args: str, code: int | None = 0) -> str:
    told: str = edl("sql", "--db", server.url(), *args, "-e", statement, code=code).err
    return told


def by_server(cases: Mapping[str, Sequence[Any]]) -> list[tuple[str, str]]:
    """Server and case; a case may begin with the kind of the only server that has it."""
    return [
        (name, case)
        for case, (only, *_) in cases.items()
        for name, kind in (("postgresql", POSTGRESQL), ("mariadb", MYSQL))
        if only in (None, kind)
    ]


RIGHT: dict[str, tuple[str | None, list[str], str, str]] = {
    "a new column with a percent sign": (
        None,
        ['CREATE TABLE "Odd %d" ("Id%d" INT PRIMARY KEY)', 'INSERT INTO "Odd %d" VALUES (1), (2)'],
        'SELECT * FROM "Odd %d" PREDICT "Odd %d"."5% sure" USING m',
        'SELECT "5% sure" FROM "Odd %d"',
    ),
    "a name with a dot": (
        None,
        ['CREATE TABLE "my.table" (id INT PRIMARY KEY)', 'INSERT INTO "my.table" VALUES (1), (2)'],
        'SELECT * FROM "my.table" PREDICT "my.table".p USING m',
        'SELECT p FROM "my.table"',
    ),
    "a schema of its own": (
        None,
        [
            "CREATE SCHEMA other",
            "CREATE TABLE twin (id INT PRIMARY KEY)",
            "CREATE TABLE other.twin (id VARCHAR(9) PRIMARY KEY)",
            "INSERT INTO other.twin VALUES ('x'), ('y')",
        ],
        "SELECT * FROM other.twin PREDICT other.twin.p USING m",
        "SELECT p FROM other.twin",
    ),
    "a column of a view": (
        None,
        [
            "CREATE TABLE seen (id INT PRIMARY KEY, p FLOAT)",
            "CREATE VIEW view_of AS SELECT * FROM seen",
            "INSERT INTO seen (id) VALUES (1), (2)",
        ],
        "SELECT * FROM view_of PREDICT view_of.p USING m",
        "SELECT p FROM seen",
    ),
    "a unique index": (
        POSTGRESQL,
        [
            "CREATE TABLE indexed (id INT NOT NULL)",
            "CREATE UNIQUE INDEX ON indexed (id)",
            "INSERT INTO indexed VALUES (1), (2)",
        ],
        "SELECT * FROM indexed PREDICT indexed.p USING m",
        "SELECT p FROM indexed",
    ),
    "domains and enumerations": (
        POSTGRESQL,
        [
            "CREATE TYPE mood AS ENUM ('sad', 'ok')",
            "CREATE DOMAIN score AS float8",
            "CREATE TABLE moods (id mood PRIMARY KEY, p score)",
            "INSERT INTO moods VALUES ('sad'), ('ok')",
        ],
        "SELECT id FROM moods PREDICT moods.p USING m",
        "SELECT p FROM moods",
    ),
    "a partitioned table": (
        POSTGRESQL,
        [
            "CREATE TABLE parted (id INT, r INT) PARTITION BY RANGE (r)",
            "CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (9)",
            "INSERT INTO parted VALUES (1, 1), (2, 2)",
        ],
        "SELECT * FROM parted PREDICT parted.p USING m",
        "SELECT p FROM parted",
    ),
    "texts that differ in case": (
        MYSQL,
        [
            "CREATE TABLE cased (id TEXT COLLATE utf8mb4_bin)",
            "INSERT INTO cased VALUES ('a'), ('A')",
        ],
        "SELECT * FROM cased PREDICT cased.p USING m",
        "SELECT p FROM cased",
    ),
    "columns in another case": (
        MYSQL,
        [
            "CREATE TABLE spelt (id INT PRIMARY KEY, Price DOUBLE)",
            "INSERT INTO spelt (id) VALUES (1), (2)",
        ],
        "SELECT Id FROM spelt PREDICT spelt.price USING m",
        "SELECT Price FROM spelt",
    ),
}


@pytest.mark.parametrize(("kind", "case"), by_server(RIGHT))
def test_a_right_target_is_not_refused(
    edl: Call, jobs: list[str], servers: dict[str, Server], kind: str, case: str
) -> None:
    server = servers[kind]
    _, setup, statement, query = RIGHT[case]
    if server.kind == MYSQL:
        setup = [each.replace('"', "`") for each in setup]
        statement, query = statement.replace('"', "`"), query.replace('"', "`")
    execute(server, *setup)
    key = ("--key", "id") if case in ("a column of a view", "a partitioned table") else ()
    if case == "texts that differ in case":
        key = ("--key", "id")
    sql(edl, server, statement, *key)
    assert jobs == ["predict"]
    assert sorted(rows(server, query)) == [(0.5,), (1.5,)]


def test_rows_without_a_key_are_found_by_all_selected_columns(
    edl: Call, jobs: list[str], server: Server
) -> None:
    """Texts that differ in case only, numbers in their last digits, and NULLs are different."""
    execute(
        server,
        "CREATE TABLE alike (id SERIAL PRIMARY KEY, role TEXT, day DATE,"
        " wage FLOAT(24), sum NUMERIC(9, 2))",
        "INSERT INTO alike (role, day, wage, sum) VALUES ('a', '2024-01-31', 1.2345671, 1.5),"
        " ('a', '2024-01-31', 1.2345674, 1.5), ('A', '2024-01-31', 1.2345671, 1.5),"
        " ('a', NULL, 1.2345671, 1.5), ('', NULL, 1.2345671, 1.5), (NULL, NULL, NULL, NULL)",
        "INSERT INTO alike (role, day, wage, sum) SELECT role, day, wage, sum FROM alike",
    )
    statement = "SELECT day, role, wage, sum FROM alike PREDICT alike.p USING m"
    told = sql(edl, server, statement)
    assert "6 rows to predict, all different" in told
    assert "12 predictions in column p of alike" in told
    found = rows(server, "SELECT id, p FROM alike ORDER BY id")
    assert sorted(p for _, p in found[:6]) == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert sorted(found[:6]) == sorted((number - 6, p) for number, p in found[6:])
    told = sql(edl, server, "SELECT wage, role AS r FROM alike PREDICT fresh.p USING m")
    assert "the table fresh is new, with the rows of the SELECT" in told
    assert rows(server, "SELECT COUNT(*), COUNT(p), COUNT(DISTINCT p) FROM fresh") == [(12, 12, 5)]


WRONG: dict[str, tuple[str | None, list[str], str, str | dict[str, str]]] = {
    "a new column of a view": (
        None,
        ["CREATE TABLE base (id INT PRIMARY KEY)", "CREATE VIEW of_base AS SELECT * FROM base"],
        "SELECT 1 AS id PREDICT of_base.p USING m",
        {POSTGRESQL: "it is a view", MYSQL: "is not of type 'BASE TABLE'"},
    ),
    "a computed column": (
        None,
        [
            "CREATE TABLE made (id INT PRIMARY KEY,"
            " p DOUBLE PRECISION GENERATED ALWAYS AS (id * 2) STORED)"
        ],
        "SELECT id FROM made PREDICT made.p USING m",
        "computes the column p itself",
    ),
    "floats for a column of integers": (
        None,
        ["CREATE TABLE whole (id INT PRIMARY KEY, p INT)"],
        "SELECT id FROM whole PREDICT whole.p USING m",
        "is of type INTEGER",
    ),
    "the key in another case": (
        MYSQL,
        ["CREATE TABLE keyed (id INT PRIMARY KEY)"],
        "SELECT id FROM keyed PREDICT keyed.ID USING m",
        "the column id identifies the rows",
    ),
    "a part of a table": (
        POSTGRESQL,
        [
            "CREATE TABLE sliced (id INT, r INT) PARTITION BY RANGE (r)",
            "CREATE TABLE slice PARTITION OF sliced FOR VALUES FROM (0) TO (9)",
        ],
        "SELECT * FROM slice PREDICT slice.p USING m",
        "it is a view or a partition",
    ),
    "a schema that is not there": (
        MYSQL,
        [],
        "SELECT 1 AS id TO EVALUATE m INTO nowhere.results",
        "Unknown database 'nowhere'",
    ),
}


@pytest.mark.parametrize(("kind", "case"), by_server(WRONG))
def test_a_wrong_target_costs_no_job(
    edl: Call, jobs: list[str], servers: dict[str, Server], kind: str, case: str
) -> None:
    server = servers[kind]
    _, setup, statement, words = WRONG[case]
    execute(server, *setup)
    told = sql(edl, server, statement, "--key", "id", code=None)
    assert not jobs, told
    assert (words if isinstance(words, str) else words[server.kind]) in told


def test_a_key_that_a_record_cannot_hold_exactly_reaches_no_other_row(
    edl: Call, jobs: list[str], server: Server
) -> None:
    execute(
        server,
        "CREATE TABLE large (id DECIMAL(12, 0) PRIMARY KEY)",
        "INSERT INTO large VALUES (16777216), (16777217)",
    )
    last = "FROM large WHERE id = 16777217 PREDICT large.p USING m"
    told = sql(edl, server, f"SELECT id {last}", code=3)
    assert "row 1, column id" in told
    assert "16777217 identifies a row, and has more digits" in told
    assert not jobs
    whole = {POSTGRESQL: "BIGINT", MYSQL: "INTEGER"}[server.kind]
    sql(edl, server, f"SELECT CAST(id AS {whole}) AS id {last}")
    assert rows(server, "SELECT p FROM large ORDER BY id") == [(None,), (0.5,)]


def test_a_trial_has_no_effect(edl: Call, jobs: list[str], servers: dict[str, Server]) -> None:
    server = servers["postgresql"]
    count = "BEGIN PERFORM nextval('fired'); RETURN NULL; END"
    results = "model TEXT, evaluated_at TIMESTAMP, row_count BIGINT"
    execute(
        server,
        "CREATE SEQUENCE fired",
        f"CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS $${count}$$",
        "CREATE TABLE watched (id INT PRIMARY KEY, p FLOAT)",
        f"CREATE TABLE watched_results ({results})",
        "CREATE TRIGGER t AFTER UPDATE ON watched EXECUTE FUNCTION fire()",
        "CREATE TRIGGER t AFTER INSERT ON watched_results EXECUTE FUNCTION fire()",
    )
    none = "SELECT id FROM watched"
    assert "returns no rows" in sql(edl, server, f"{none} PREDICT watched.p USING m", code=3)
    sql(edl, server, f"{none} TO EVALUATE m INTO watched_results", code=3)
    assert rows(server, "SELECT is_called FROM fired") == [(False,)]
    assert rows(server, "SELECT relname FROM pg_class WHERE relname LIKE 'edl%'") == []


@pytest.mark.parametrize(
    ("grants", "missing"),
    [
        (["SELECT, INSERT ON edl.*"], "CREATE command denied"),
        (["SELECT, CREATE ON edl.*"], "INSERT command denied"),
        (["SELECT ON edl.*", "INSERT, CREATE ON edl.my_results"], ""),
        (["SELECT ON edl.*", "maker"], ""),
        (["SELECT, INSERT, CREATE ON *.*"], ""),
    ],
)
def test_the_right_to_create_a_table_of_mariadb_is_checked_before_a_job(
    edl: Call, jobs: list[str], servers: dict[str, Server], grants: list[str], missing: str
) -> None:
    server = servers["mariadb"]
    execute(
        server,
        "CREATE ROLE IF NOT EXISTS maker",
        "GRANT INSERT, CREATE ON edl.* TO maker",
        "CREATE OR REPLACE USER author@localhost IDENTIFIED BY 'author-secret'",
        *(f"GRANT {each} TO author@localhost" for each in grants),
        f"SET DEFAULT ROLE {'maker' if 'maker' in grants else 'NONE'} FOR author@localhost",
    )
    url = server.url("author", "author-secret")
    told = edl(
        *("sql", "--db", url, "-e", "SELECT 1 AS id TO EVALUATE m INTO my_results"), code=None
    )
    assert jobs == ([] if missing else ["evaluate"]), str(told)
    assert missing in told.err
    assert (told.code == 10) == bool(missing)
    assert rows(server, "SHOW TABLES LIKE 'my_results'") == []


def wait_for(jobs: list[str]) -> None:
    while not jobs:
        time.sleep(0.05)


def test_others_who_lock_the_table_cost_no_job(
    edl: Call, jobs: list[str], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edl_sql.databases.database._TRIAL_S", 1)
    lock = "LOCK TABLE contended IN SHARE MODE"
    if server.kind == MYSQL:
        lock = "UPDATE contended SET p = 9 WHERE id = 1"
        execute(server, "SET GLOBAL innodb_lock_wait_timeout = 1")
    execute(
        server,
        "CREATE TABLE contended (id INT PRIMARY KEY, p FLOAT)",
        "INSERT INTO contended (id) VALUES (1), (2)",
    )
    with connect(server) as other:
        other.exec_driver_sql(lock)
        monkeypatch.setattr("edl_sql.databases.retries.pause", lambda _: other.rollback())
        # PostgreSQL waits for the lock; MariaDB gives up, and edl tries again.
        release = threading.Thread(target=lambda: wait_for(jobs) or other.rollback())
        if server.kind == POSTGRESQL:
            release.start()
        told = sql(edl, server, "SELECT id FROM contended PREDICT contended.p USING m")
        if server.kind == POSTGRESQL:
            release.join()
    assert jobs == ["predict"]
    assert rows(server, "SELECT p FROM contended ORDER BY id") == [(0.5,), (1.5,)]
    if server.kind == MYSQL:
        assert "another transaction has locked it" in told
        execute(server, "SET GLOBAL innodb_lock_wait_timeout = 50")


def test_keys_that_take_long_to_compare_are_compared_later(
    edl: Call, jobs: list[str], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edl_sql.tables.target_checks.KEY_CHECK_S", 1)
    execute(
        server, "CREATE TABLE slow (id INT PRIMARY KEY)", "INSERT INTO slow VALUES (1), (2), (3)"
    )
    wait = {POSTGRESQL: "(SELECT pg_sleep(2)) AS s", MYSQL: "(SELECT sleep(2) AS n) AS s"}
    told = sql(
        edl, server, f"SELECT slow.* FROM slow, {wait[server.kind]} PREDICT slow.p USING m", code=0
    )
    assert "the keys were not compared" in told
    assert rows(server, "SELECT p FROM slow ORDER BY id") == [(0.5,), (1.5,), (2.5,)]
