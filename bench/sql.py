r"""Rows of PostgreSQL per second: ``elasticdl.convert_data`` and ``\copy`` of psql to a file."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.measure import compare
from tests import database_servers

_ROWS = 200_000
_RUNS = 5
_QUERY = "SELECT * FROM people"
_TABLE = f"""
CREATE TABLE people AS SELECT
    number AS id, 'name ' || number AS name, 'role ' || number % 7 AS role, number / 3.0 AS age,
    (number * 1.37)::float8 AS salary, DATE '2000-01-01' + number % 9000 AS hired,
    number % 5 = 0 AS manager
FROM generate_series(1, {_ROWS}) AS number
"""


def measures() -> list[dict[str, Any]]:
    """Rows per second of a whole table."""
    import elasticdl

    with database_servers.postgresql() as server, TemporaryDirectory() as folder:
        database_servers.execute(server, _TABLE)
        output = Path(folder)

        def convert() -> None:
            elasticdl.convert_data(
                server.url(), query=_QUERY, output=str(output / f"{time.monotonic_ns()}.recordio")
            )

        def copy() -> None:
            subprocess.run(
                [
                    "psql",
                    "-q",
                    server.url(password=None),
                    "-c",
                    rf"\copy ({_QUERY}) TO {output}/csv csv",
                ],
                env={**os.environ, "PGPASSWORD": database_servers.PASSWORD},
                check=True,
            )

        name = "rows of seven columns from PostgreSQL into records"
        ours, theirs = (lambda: _rate(convert)), (lambda: _rate(copy))
        measure = compare(
            name, "rows/s", ours, r"psql \copy to CSV", theirs, runs=_RUNS, target=None
        )
        return [measure.to_json()]


def _rate(run: Callable[[], None]) -> float:
    """Rows per second."""
    began = time.perf_counter()
    run()
    return _ROWS / (time.perf_counter() - began)
