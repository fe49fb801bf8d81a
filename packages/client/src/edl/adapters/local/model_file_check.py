"""Checks a model file in a worker process, which finds all errors at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from edl import codec
from edl.adapters.local.launcher import lacks_module, python
from edl.core.job_status import Failure
from edl.ports.model_files import Verdict
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.v1 import job_pb2
from edl_runtime.local import process_identity
from edl_runtime.local.log_notices import without_notices

IDLE_S = 180.0
"""A check that computes nothing for so long waits for something that does not come."""

BUSY_S = 900.0
"""Seconds of one core after which a check is taken for an endless loop."""

_IDLE_SHARE = 0.001  # of one core: what a process uses that only waits
_POLL_S = 0.25
_DETAIL_LINES = 20


def check(spec: job_pb2.JobSpec, idle_s: float = IDLE_S, busy_s: float = BUSY_S) -> Verdict:
    """Run ``python -m edl_worker check`` on a job's description.

    The limits are of computing time, so that a machine that is busy with other things does not
    make a check fail.

    Args:
        idle_s: how long the check may compute nothing.
        busy_s: how many seconds of a core it may compute.

    Raises:
        EdlError: there is no verdict.
    """
    command = [python(), "-P", "-m", "edl_worker", "check"]
    with tempfile.TemporaryDirectory(prefix="edl-check-") as folder:
        file, output, log = (Path(folder) / name for name in ("spec.json", "output", "log"))
        scratch = Path(folder) / "tmp"
        scratch.mkdir()
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "CUDA_VISIBLE_DEVICES": "-1",
            "TMPDIR": str(scratch),  # what a check that is killed has left goes with the folder
        }
        file.write_text(codec.to_json(spec))
        # Files and no pipes: a process that the model file has left behind would hold those open.
        with output.open("wb") as stdout, log.open("wb") as stderr:
            try:
                process = subprocess.Popen(
                    [*command, "--spec", str(file), "--end-with-parent"],
                    stdin=subprocess.PIPE,  # never written to: its end tells that we are gone
                    stdout=stdout,
                    stderr=stderr,
                    env=environment,
                )
            except OSError as error:
                raise EdlError(
                    ErrorCode.USAGE,
                    f"{command[0]} cannot be started: {error.strerror}",
                    where="$EDL_PYTHON",
                    remedy="Set EDL_PYTHON to the interpreter that has edl-worker, or unset it.",
                ) from error
        with process:
            try:
                _await(process, spec.model.model_def, idle_s, busy_s)
            finally:
                process.kill()
        answer = _answer(output.read_text(errors="replace"))
        if answer is None:
            raise _no_verdict(process.returncode, command, log.read_text(errors="replace"))
        warnings = tuple(map(str, answer.get("warnings") or ()))
        return Verdict(tuple(_failure(item) for item in answer["errors"]), warnings, answer)


def _await(process: subprocess.Popen[bytes], where: str, idle_s: float, busy_s: float) -> None:
    """Wait for the end of a check, while it computes, and not too much."""
    used, since = 0.0, time.monotonic()
    while True:
        try:
            process.wait(_POLL_S)
            return
        except subprocess.TimeoutExpired:
            pass
        now = time.monotonic()
        computed = process_identity.cpu_seconds(process.pid)
        if computed - used > _IDLE_SHARE * (now - since) + 0.05:
            used, since = computed, now
        if now - since > idle_s:
            reason = f"the check has waited for {idle_s:.0f} s and computed nothing"
        elif computed > busy_s:
            reason = f"the check has computed for {busy_s:.0f} s"
        else:
            continue
        raise EdlError(
            ErrorCode.TIMED_OUT,
            f"{reason}; the check was stopped",
            where=where,
            remedy="Keep downloads, questions and long computations out of the model file's "
            "import.",
        )


def _answer(output: str) -> dict[str, Any] | None:
    """Return the verdict in a worker's output: its last line that is such an object."""
    for text in (output, *reversed(output.splitlines())):
        try:
            facts = json.loads(text)
        except ValueError:
            continue
        if isinstance(facts, dict) and isinstance(facts.get("errors"), list):
            return facts
    return None


def _failure(item: dict[str, Any]) -> Failure:
    return Failure(
        code=str(item.get("code") or "MODEL_CONTRACT"),
        what=str(item.get("what", "")),
        where=str(item.get("where", "")),
        remedy=str(item.get("remedy", "")),
        detail=str(item.get("detail", "")),
    )


def _no_verdict(code: int, command: list[str], log: str) -> EdlError:
    detail = "\n".join(without_notices(log.splitlines())[-_DETAIL_LINES:])
    if lacks_module(command):
        return EdlError(
            ErrorCode.SYSTEM,
            "the worker's package is not installed",
            where=command[0],
            remedy="Install it there: pip install 'edl-client[local]' 'edl-worker[cpu]'",
        )
    ended = f"exit code {code}"
    if code < 0:
        ended = f"signal {signal.Signals(-code).name}"
    return EdlError(
        ErrorCode.MODEL_IMPORT,
        f"the model file ended the process that checks it, with {ended}",
        where=" ".join(command),
        remedy="SIGKILL usually means that memory is short. Otherwise the end of its output is "
        "below; edl doctor checks this machine."
        if code == -signal.SIGKILL
        else "The end of its output is below; edl doctor checks this machine.",
        detail=detail,
    )
