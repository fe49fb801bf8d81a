"""Results of ``edl`` commands, for tests of the client and of packages that extend it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    args: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def __str__(self) -> str:
        return f"edl {' '.join(self.args)} -> {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


def assert_refused(done: Done, code: int, *words: str) -> None:
    """The command failed with a code, says these words and what to do, and shows no traceback."""
    assert done.code == code, str(done)
    for word in words:
        assert word in done.err, f"{word!r} is not said\n{done}"
    assert "what to do: " in done.err, str(done)
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) <= 10, str(done)
