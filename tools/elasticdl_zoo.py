"""Trains ElasticDL's own model files, unmodified: ``./dev elasticdl_zoo --checkout PATH``.

PATH is a folder with ElasticDL's ``model_zoo``. Neither these files nor parts of them are in this
repository. Each is trained by ``edl train`` with one worker, on data that it can learn, and
evaluated after each epoch.

    ./dev elasticdl_zoo --checkout elasticdl --state last           all files of the checkout
    ./dev elasticdl_zoo --checkout elasticdl --keep-going           also after one that fails
    ./dev elasticdl_zoo --checkout elasticdl deepctr/wdl            this one

``bench/results/elasticdl_zoo.jsonl`` has what was measured of each state, with the commit of each
run; docs/elasticdl.md counts it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from elasticdl_data import Trial, trial
from results_file import ResultsFile

ROOT = Path(__file__).resolve().parent.parent
EDL = str(Path(sys.executable).parent / "edl")
RESULTS = ROOT / "bench" / "results" / "elasticdl_zoo.jsonl"
LEARNED = 1 / 4
"""A model has learned if a metric or the loss is this far from chance to the best value."""


def progress(metrics: Mapping[str, float], classes: int) -> float:
    """How far the best of the metrics is from chance, 0, to perfect, 1.

    Args:
        metrics: of held-out records, ``loss`` among them. If a loss is below 0, it is no
            cross-entropy, and says nothing.
        classes: equally frequent ones.
    """
    found = []
    for name, value in metrics.items():
        if name == "loss" and value >= 0:
            found.append(1 - value / math.log(classes))
        elif name.endswith("accuracy"):
            found.append((value - 1 / classes) / (1 - 1 / classes))
        elif name.endswith("auc"):
            found.append(2 * value - 1)
    return max(found, default=0.0)


def files_of(zoo: Path) -> list[str]:
    """The files with a model, as paths in the model zoo without ``.py``."""
    paths = (path for path in zoo.rglob("*.py") if trial(path, zoo))
    return sorted(path.relative_to(zoo).with_suffix("").as_posix() for path in paths)


def measure(zoo: Path, file: str, chosen: Trial, place: Path) -> dict[str, Any]:
    """Train one file, and return what came of it."""
    records = chosen.write(place / "data")
    name = file.replace("/", "-").replace("_", "-")
    model_def = file.replace("/", ".")
    if "def custom_model(" in (zoo / f"{file}.py").read_text():
        model_def += ".custom_model"  # as ElasticDL's users name it
    environment = {**os.environ, "EDL_HOME": str(place / "home"), "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = _edl(
        *("train", "--model-zoo", str(zoo), "--model-def", model_def),
        *("--data", f"{place}/data/train", "--validation-data", f"{place}/data/test"),
        *("--num-workers", "1", "--num-epochs", str(chosen.epochs), "--seed", "1"),
        *("--name", name, "--output", f"{place}/model", "-o", "json"),
        environment=environment,
    )
    result = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    if result.get("state") != "SUCCEEDED":
        error = result.get("error") or {}
        message = " ".join(error.get(part, "") for part in ("what", "where", "remedy")).strip()
        return {
            "trained": False,
            "state_of_job": result.get("state", "REFUSED"),
            "message": _without_folders(message or done.stderr[-2000:], zoo, place),
        }
    status = json.loads(_edl("status", name, "-o", "json", environment=environment).stdout)
    losses = next(curve["points"] for curve in status["curves"] if curve["name"] == "loss")
    far = progress(result["metrics"], chosen.classes)
    return {
        "trained": result["records_trained"] == records * chosen.epochs,
        "records": records,
        "epochs": chosen.epochs,
        "records_trained": result["records_trained"],
        "first_loss": round(losses[0]["value"], 4),
        "last_loss": round(losses[-1]["value"], 4),
        "classes": chosen.classes,
        "metrics": {name: round(value, 4) for name, value in result["metrics"].items()},
        "progress": round(far, 3),
        "learned": far >= LEARNED,
        "warnings": [
            _without_folders(warning, zoo, place) for warning in result.get("warnings", ())
        ],
    }


def _edl(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [EDL, *arguments], capture_output=True, text=True, env=environment, check=False
    )


def _without_folders(text: str, zoo: Path, place: Path) -> str:
    """Return a text without the folders of this machine."""
    return text.replace(str(zoo), "model_zoo").replace(str(place), "")


def table(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line of Markdown for each file."""
    yield "| file | trained | loss | held-out records | learned |"
    yield "|---|---|---|---|---|"
    for row in rows:
        if not row["trained"]:
            message = " ".join(str(row.get("message", row)).split())
            yield f"| `{row['file']}` | no | | {message[:160]} | |"
            continue
        metrics = ", ".join(f"{name} {value:.3g}" for name, value in row["metrics"].items())
        learned = "yes" if row["learned"] else "no"
        yield (
            f"| `{row['file']}` | {row['records']} × {row['epochs']}"
            f" | {row['first_loss']:.3g} to {row['last_loss']:.3g} | {metrics} | {learned} |"
        )


def main() -> int:
    """Train, print a table, and return 1 if any file was not trained."""
    parser = argparse.ArgumentParser(
        prog="./dev elasticdl_zoo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", nargs="*", help="as mnist/mnist_subclass; by default all")
    parser.add_argument("--checkout", type=Path, required=True, metavar="PATH")
    parser.add_argument(
        "--state", metavar="NAME", help="of the checkout, in the results; without it, none is kept"
    )
    parser.add_argument("--keep-going", action="store_true", help="after a file is not trained")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    chosen = parser.parse_args()
    zoo = (chosen.checkout / "model_zoo").resolve()
    files = chosen.file or files_of(zoo)
    if not files:
        parser.error(f"no file of ElasticDL with a model below {zoo}")
    results = ResultsFile(chosen.results if chosen.state else None, ("state", "file"))
    rows = []
    for file in files:
        path = zoo / f"{file}.py"
        what = trial(path, zoo) if path.is_file() else None
        if what is None:
            parser.error(f"{file} is no file with a model below {zoo}")
        with tempfile.TemporaryDirectory() as folder:
            result = measure(zoo, file, what, Path(folder))
        results.add(result, state=chosen.state, file=file)
        rows.append({"file": file, **result})
        print(f"{file}: {json.dumps(result)}", flush=True)
        if not result["trained"] and not chosen.keep_going:
            break
    print(*table(rows), sep="\n")
    return 0 if all(row["trained"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
