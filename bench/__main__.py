"""``./dev bench [NAME...] [--json FILE]``: run benchmarks, print a table of ratios."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_NOT_BENCHMARKS = {"__init__", "__main__", "jobs", "measure", "small_jobs"}


def names() -> list[str]:
    here = Path(__file__).parent
    return sorted(path.stem for path in here.glob("*.py") if path.stem not in _NOT_BENCHMARKS)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        epilog="example: ./dev bench mnist_local --json out.json",
        description="Measurements of edl next to its peers, made in the same run.",
    )
    parser.add_argument("name", nargs="*", help=f"one or more of: {', '.join(names())}")
    parser.add_argument("--json", metavar="FILE", help="write one object per measure")
    chosen = parser.parse_args()
    unknown = set(chosen.name) - set(names())
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names())}")
    rows: list[dict[str, Any]] = []
    console = Console()
    for name in chosen.name or names():
        print(f"bench: {name} ...", file=sys.stderr, flush=True)
        rows += importlib.import_module(f"bench.{name}").measures()
    console.print(_table(rows))
    if chosen.json:
        Path(chosen.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{os.cpu_count()} cores, {platform.machine()}, medians (min–max of runs)")
    for title in ("measure", "value", "peer", "peer's value", "ratio (min–max)", "target"):
        table.add_column(title, justify="left" if title in ("measure", "peer") else "right")
    for row in rows:
        ratios = [a / b for a, b in row["runs"] if b]
        spread = f" ({min(ratios):.2f}–{max(ratios):.2f})" if ratios else ""
        target = row["target"]
        mark = "" if target is None else f"{target:.2f} {'✓' if row['ratio'] >= target else '✗'}"
        table.add_row(
            row["name"],
            f"{row['value']:,.6g} {row['unit']}",
            row["peer"],
            f"{row['peer_value']:,.6g}",
            f"{row['ratio']:.2f}{spread}",
            mark,
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
