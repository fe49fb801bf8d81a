"""Checks a model file in a worker process, which finds all errors at once."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edl import codec
from edl.adapters.launcher import python
from edl.core.job_status import Failure
from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, job_pb2

DEADLINE_S = 180.0
"""Importing TensorFlow on a cold disk, building a large model, and some patience."""

_DETAIL_LINES = 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the worker found; no failures: the model file can train.

    Attributes:
        facts: the worker's whole report.
    """

    failures: tuple[Failure, ...]
    facts: dict[str, Any]


def check(spec: job_pb2.JobSpec) -> Verdict:
    """Run ``python -m edl_worker check`` on a job's description.

    Raises:
        EdlError: INTERNAL or TIMED_OUT, if there is no verdict.
    """
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    with tempfile.TemporaryDirectory(prefix="edl-check-") as folder:
        file = Path(folder) / "spec.json"
        file.write_text(codec.to_json(spec))
        command = [python(), "-m", "edl_worker", "check", "--spec", str(file)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                env=environment,
                timeout=DEADLINE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise EdlError(
                error_pb2.TIMED_OUT,
                f"the check took longer than {DEADLINE_S:.0f} s and was stopped",
                where=spec.model.model_def,
                remedy="Keep computations and downloads out of the import of the model file.",
            ) from None
        except OSError as error:
            raise _no_verdict(command, str(error), "") from error
    # The model file may print, too; the verdict is the last line that is an object.
    for text in (done.stdout, *reversed(done.stdout.splitlines())):
        try:
            facts = json.loads(text)
        except ValueError:
            continue
        if isinstance(facts, dict) and isinstance(facts.get("errors"), list):
            failures = tuple(_failure(item) for item in facts["errors"])
            return Verdict(failures, facts)
    raise _no_verdict(command, f"exit code {done.returncode}", done.stderr)


def _failure(item: dict[str, Any]) -> Failure:
    return Failure(
        code=str(item.get("code") or "MODEL_CONTRACT"),
        what=str(item.get("what", "")),
        where=str(item.get("where", "")),
        remedy=str(item.get("remedy", "")),
        detail=str(item.get("detail", "")),
    )


def _no_verdict(command: list[str], reason: str, stderr: str) -> EdlError:
    missing = "No module named edl_worker" in stderr
    return EdlError(
        error_pb2.INTERNAL,
        f"the check ended without a result: {reason}",
        where=" ".join(command[:4]),
        remedy=(
            "Install the worker there: pip install 'edl-client[local]' 'edl-worker[cpu]'"
            if missing
            else "The end of its output is below; edl doctor checks this machine."
        ),
        detail="\n".join(stderr.splitlines()[-_DETAIL_LINES:]),
    )
