"""Records that edl data has written, and commands in this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recordio
import recordio.example
from edl.__main__ import run
from edl_testing.command import Done

Call = Callable[..., Done]
TABLE = 'age,income,town,note\n30,1.5,"Köln, West",\n41,2,Rom,x\n,3,Köln,\n'


def commands(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command in this process; it has to end with this code."""

    def call(*args: str, code: int = 0) -> Done:
        capsys.readouterr()
        done = Done(args, run(args), *capsys.readouterr())
        assert done.code == code, str(done)
        return done

    return call


def records(place: Path | str) -> list[bytes]:
    return [
        record
        for uri in recordio.expand(str(place))
        for record in recordio.open_source(uri).read(0, recordio.open_source(uri).count())
    ]


def examples(place: Path | str) -> list[dict[str, Any]]:
    return [
        {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in recordio.example.decode(record).items()
        }
        for record in records(place)
    ]


def nothing_is_left(place: Path, *but: str) -> None:
    assert sorted(os.listdir(place)) == sorted(but)
