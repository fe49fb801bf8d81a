"""Numbers of 16 bits on the wire: the same counts, whatever they travel as."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import Edl
from test_embeddings import check_counts
from test_exactly_once import counts
from test_parameter_servers import MODES, arguments


@pytest.mark.parametrize(
    ("model", "precision", "mode", "servers"),
    [
        ("counting", "float16", "async", "2"),
        ("counting", "bfloat16", "sync", "0"),
        ("counting_rows", "bfloat16", "async", "2"),
    ],
)
def test_every_record_trains_exactly_once_per_epoch(
    edl: Edl,
    tmp_path: Path,
    numbered: Callable[..., Path],
    model: str,
    precision: str,
    mode: str,
    servers: str,
) -> None:
    """Counts are numbers that 16 bits have: they are exact, or a record is."""
    total, output = 997, tmp_path / "model"
    params = ("--params", f"size={total}") if model == "counting" else ()
    done = edl(
        *arguments(model, numbered(total), output, 2, *params, *MODES[mode]),
        *("--wire-precision", precision, "--parameter-servers", servers),
        *("--validation-data", str(tmp_path / "numbered")),
    )
    assert done.json["records_trained"] == 2 * total
    if model == "counting":
        np.testing.assert_array_equal(counts(output), 2)
    else:
        check_counts(output, total, 2)


def travelled(edl: Edl, name: str) -> dict[str, float]:
    """Bytes of parameters by direction, from the metrics of a job whose page is still there."""
    url = edl.status(name)["dashboard_url"]
    with urllib.request.urlopen(f"{url}metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(r'edl_parameter_bytes_total\{direction="(\w+)"\} (\S+)', text)
    return {direction: float(value) for direction, value in found}


def test_half_as_many_bytes_travel(edl: Edl, tmp_path: Path, numbered: Callable[..., Path]) -> None:
    total = 997
    data = numbered(total)
    bytes_of = {}
    for precision in ("float32", "bfloat16"):
        given = arguments("counting", data, tmp_path / precision, 2, "--params", f"size={total}")
        edl(*given, "--wire-precision", precision, "--name", precision, "--keep-page", "60")
        bytes_of[precision] = travelled(edl, precision)
        edl("delete", precision, "--yes")
    whole, half = bytes_of["float32"], bytes_of["bfloat16"]
    # The initial values and those of the trained model are whole; 128 gradients are not.
    assert half["received"] < 0.55 * whole["received"]
    assert half["sent"] < 0.75 * whole["sent"]
