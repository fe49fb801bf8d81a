"""Numbers of 16 bits on the wire halve the traffic; test_exactly_once counts with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from conftest import Edl
from counting import train

from edl_testing.scrape import scrape


def traffic(edl: Edl, name: str) -> dict[str, float]:
    """Bytes of parameters by direction, from the metrics of a job whose page is still there."""
    text = scrape(edl.job_dir(name))
    found = re.findall(r'edl_parameter_bytes_total\{direction="(\w+)"\} (\S+)', text)
    return {direction: float(value) for direction, value in found}


def test_half_as_many_bytes_travel(edl: Edl, tmp_path: Path, numbered: Callable[..., Path]) -> None:
    total = 997
    data = numbered(total)
    bytes_of = {}
    for precision in ("float32", "bfloat16"):
        given = train(data, total, tmp_path / precision, "--num-workers", "2", epochs=2)
        edl(*given, "--wire-precision", precision, "--name", precision, "--keep-page", "600")
        bytes_of[precision] = traffic(edl, precision)
        edl("delete", precision, "--yes")
    whole, half = bytes_of["float32"], bytes_of["bfloat16"]
    # The initial values and those of the trained model are whole; 128 gradients are not.
    assert half["received"] < 0.55 * whole["received"]
    assert half["sent"] < 0.75 * whole["sent"]
