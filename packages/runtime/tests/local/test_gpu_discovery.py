"""The GPUs of a machine, from its device files and what its driver says."""

from __future__ import annotations

from pathlib import Path

import pytest

from edl_runtime.local.gpus import find_gpus

FIRST, SECOND = (
    "GPU-1d4cae12-e02a-1df8-aa19-bbc1fe7d6ee8",
    "GPU-5c71b0c5-3f3b-0a75-94a2-7d2dbd8f2f4a",
)
PART = "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"
WHOLE = f"GPU 0: NVIDIA H200 (UUID: {FIRST})\nGPU 1: NVIDIA H200 (UUID: {SECOND})\n"
DIVIDED = (
    f"GPU 0: NVIDIA H200 (UUID: {FIRST})\n"
    f"  MIG 3g.71gb     Device  0: (UUID: {PART})\n"
    f"  MIG 3g.71gb     Device  1: (UUID: MIG-GPU-1d4cae12/1/0)\n"
    f"GPU 1: NVIDIA H200 (UUID: {SECOND})\n"
)


class Machine:
    """The file system of a machine whose driver has two GPUs, and the tool if it has one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for place, uuid in (("0000:c1:00.0", SECOND), ("0000:01:00.0", FIRST)):
            folder = root / "proc/driver/nvidia/gpus" / place
            folder.mkdir(parents=True)
            lines = ("Model: \t\t NVIDIA H200", f"GPU UUID: \t {uuid}", "Device Minor: \t 0")
            (folder / "information").write_text("\n".join(lines))
        (root / "dev").mkdir()
        (root / "dev/nvidiactl").touch()

    def install_tool(self, script: str) -> None:
        tool = self.root / "nvidia-smi"
        tool.write_text(f'#!/bin/sh\n[ "$*" = -L ] || exit 2\n{script}\n')
        tool.chmod(0o755)

    def find(self, **environ: str) -> tuple[str, ...]:
        return find_gpus({"PATH": f"{self.root}:/usr/bin:/bin", **environ}, self.root)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        (WHOLE, (FIRST, SECOND)),
        (DIVIDED, (PART, "MIG-GPU-1d4cae12/1/0", SECOND)),
    ],
)
def test_the_tool_of_the_driver_lists_them(
    machine: Machine, listed: str, found: tuple[str, ...]
) -> None:
    machine.install_tool(f"cat <<'.'\n{listed}.")
    assert machine.find() == found


@pytest.mark.parametrize("script", ["", "exit 9", "echo 'No devices found.'; exit 6"])
def test_without_its_answer_the_driver_s_own_list_is_read(machine: Machine, script: str) -> None:
    if script:
        machine.install_tool(script)
    else:
        assert machine.find(PATH="/nowhere") == (FIRST, SECOND)
    assert machine.find() == (FIRST, SECOND), "in the order of their places on the bus"


def test_a_container_without_devices_has_none_though_it_sees_the_driver(machine: Machine) -> None:
    machine.install_tool(f"cat <<'.'\n{WHOLE}.")
    (machine.root / "dev/nvidiactl").unlink()
    assert machine.find() == ()
    assert machine.find(CUDA_VISIBLE_DEVICES="0,1") == ()


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ("2,0", ("2", "0")),
        (f"{SECOND}, {PART}", (SECOND, PART)),
        ("GPU-5c71", ("GPU-5c71",)),
        ("", ()),
        ("-1", ()),
        ("0,-1,1", ("0",)),
        ("none", ()),
    ],
)
def test_the_user_s_choice_counts(machine: Machine, chosen: str, found: tuple[str, ...]) -> None:
    machine.install_tool(f"cat <<'.'\n{WHOLE}.")
    assert machine.find(CUDA_VISIBLE_DEVICES=chosen) == found
