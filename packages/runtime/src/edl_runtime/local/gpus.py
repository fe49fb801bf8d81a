"""The GPUs of this machine, as NVIDIA's driver knows them."""

from __future__ import annotations

import logging
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger(__name__)

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that says which GPUs a process sees, by number or UUID."""

NONE = "-1"
"""Its value for no GPU at all."""

_LISTED = re.compile(r"^(?P<part> +MIG|GPU) .*\(UUID: (?P<uuid>[\w./-]+)\)", re.MULTILINE)
_UUID = re.compile(r"^GPU UUID:\s+(?P<uuid>GPU-[\w-]+)", re.MULTILINE)
_LIST_S = 30.0
"""How long the driver may take to answer: without its persistence mode it starts first."""


def find_gpus(environ: Mapping[str, str], root: Path = Path("/")) -> tuple[str, ...]:
    """Return the GPUs that processes with this environment may use, as CUDA names them.

    A GPU that is divided (MIG) counts as its parts.

    Args:
        environ: ``CUDA_VISIBLE_DEVICES`` in it restricts them, and ``PATH`` leads to nvidia-smi.
        root: of the machine's file system.
    """
    if not (root / "dev/nvidiactl").exists():
        return ()  # no driver, or a container that was given no GPU
    if (chosen := environ.get(VISIBLE)) is not None:
        return _read_chosen(chosen)
    return _list_with_tool(environ) or _list_with_driver(root / "proc/driver/nvidia/gpus")


def _read_chosen(text: str) -> tuple[str, ...]:
    """Return the names in a list; as in CUDA, one that is invalid ends it."""
    found: list[str] = []
    for name in map(str.strip, text.split(",")):
        if not re.fullmatch(r"\d+|(GPU|MIG)-[\w./-]+", name):
            break
        found.append(name)
    return tuple(found)


def _list_with_tool(environ: Mapping[str, str]) -> tuple[str, ...]:
    try:
        answer = subprocess.run(
            ["nvidia-smi", "-L"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIST_S,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        log.warning("nvidia-smi lists no GPUs: %s", error)
        return ()
    gpus: list[list[str]] = []
    for line in _LISTED.finditer(answer.stdout):
        if line["part"] == "GPU":
            gpus.append([line["uuid"]])
        elif gpus:
            gpus[-1].append(line["uuid"])
    return tuple(name for whole, *parts in gpus for name in (parts or [whole]))


def _list_with_driver(folder: Path) -> tuple[str, ...]:
    """Return the whole GPUs of the machine, in the order of their places on the bus."""
    found = []
    for file in sorted(folder.glob("*/information")):
        try:
            uuid = _UUID.search(file.read_text())
        except OSError:
            continue
        if uuid is not None:
            found.append(uuid["uuid"])
    return tuple(found)
