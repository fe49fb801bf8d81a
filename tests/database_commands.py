"""Commands about databases that tests run in their own process, and what they have written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Done

import recordio
import recordio.example
from edl.__main__ import run
from tests.database_servers import PASSWORD

Call = Callable[..., Done]


def commands_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Call:
    """Runs edl in a folder, without passwords; no output has the databases' own."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
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
