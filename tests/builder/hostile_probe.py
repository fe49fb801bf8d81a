"""What hostile code tries in a container; it is run there, and knows nothing but Python.

Its argument is an object of JSON: ``secret`` (a file of the user that the job does not name),
``job`` (its name), ``home`` (of all jobs), ``engine`` (the path of its socket),
``token`` (of the user's environment), ``output`` (a folder that it may write to, or nothing). It
prints an object of JSON, which has for each attempt what happened, in one word: the name of the
error, ``absent``, or ``DONE``.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

given: dict[str, Any] = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x00020000
found: dict[str, str] = {}


def attempt(name: str, act: Callable[[], object]) -> None:
    """An act that raises nothing, and returns nothing false, is done."""
    try:
        found[name] = "DONE" if act() is not False else "absent"
    except FileNotFoundError:
        found[name] = "absent"
    except OSError as error:
        found[name] = errno.errorcode.get(error.errno or 0, type(error).__name__)


def call(function: str, *arguments: object) -> None:
    """Call a function of the C library."""
    if getattr(libc, function)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), function)


def read(path: object) -> Callable[[], object]:
    return lambda: open(str(path), "rb").read(1)


def write(path: object) -> Callable[[], object]:
    return lambda: open(str(path), "ab").close()


def connect(address: str | tuple[str, int]) -> object:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as one:
        one.settimeout(2)
        return one.connect(address)


def enter(namespace: str) -> None:
    call("setns", os.open(namespace, os.O_RDONLY), 0)


# --- the engine ---
for path in (given["engine"], "/var/run/docker.sock", "/run/docker.sock", "/run/containerd.sock"):
    attempt(f"engine at {path}", lambda path=path: connect(path))
for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
    _, _, path = line.partition(" @")  # an abstract socket of the machine's network
    if "docker" in path or "containerd" in path:
        attempt(f"abstract socket {path}", lambda path=path: connect(f"\0{path}"))
attempt("engine mounted", lambda: "docker.sock" in Path("/proc/self/mountinfo").read_text())

# --- files of the machine ---
secret, home = given["secret"], Path(given["home"])
job_dir = home / given["job"]
attempt("secret", read(secret))
attempt("secret by /proc/1/root", read(f"/proc/1/root{secret}"))
attempt("change the authority", write(job_dir / "identity" / "authority.pem"))
attempt("identity of the client", read(job_dir / "identity" / "client" / "identity.pem"))
attempt("another job", (home / "other").exists)
for path in ("/proc/kcore", "/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/fuse"):
    attempt(f"read {path}", read(path))
for path in (
    *("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe"),
    *("/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/cgroup.procs", "/sys/kernel/uevent_helper"),
    *("/etc/passwd", "/usr/x", "/x", "/run/x", "/var/x", "/model_zoo/x"),
):
    attempt(f"write {path}", write(path))
attempt("mknod", lambda: os.mknod("/tmp/disk", 0o60666, os.makedev(8, 0)))
attempt("mount", lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None))
attempt("unshare users", lambda: call("unshare", CLONE_NEWUSER | CLONE_NEWNS))
attempt("chroot", lambda: os.chroot("/tmp"))
attempt("by handle", lambda: call("syscall", 304, -100, b"\0" * 32, 0))
attempt("kernel keys", lambda: call("syscall", 250, 0, -3, 1))
attempt("bpf", lambda: call("syscall", 321, 0, b"\0" * 128, 128))
attempt("module", lambda: call("syscall", 313, 0, b"", 0))
attempt("reboot", lambda: call("syscall", 169, 0, 0, 0, 0))
for space in ("mnt", "pid", "net", "ipc"):
    attempt(f"enter {space}", lambda space=space: enter(f"/proc/1/ns/{space}"))

# --- rights ---
attempt("setuid", lambda: os.setuid(0) if os.getuid() else False)
status = Path("/proc/self/status").read_text()
for field in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    line = next(it for it in status.splitlines() if it.startswith(f"{field}:"))
    attempt(field, lambda line=line: int(line.split()[1], 16) != 0)
attempt("new privileges", lambda: "NoNewPrivs:\t0" in status)
attempt("no seccomp", lambda: "Seccomp:\t0" in status)
attempt("raw packets", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close())
attempt("raw ip", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close())


def low_port() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 79))


attempt("port 79", low_port)

# --- others ---
words = [Path(f"/proc/{it}/cmdline").read_bytes() for it in os.listdir("/proc") if it.isdigit()]
attempt(
    "processes of the machine",
    lambda: any(b"docker" + b"d" in it for it in words),
)
environs = []
for it in os.listdir("/proc"):
    if it.isdigit():
        try:
            environs.append(Path(f"/proc/{it}/environ").read_bytes())
        except OSError:
            continue
attempt("tokens", lambda: any(given["token"].encode() in it for it in environs))
keys = sorted(str(it.relative_to(job_dir)) for it in job_dir.glob("identity/*/*.pem"))

# --- where it may write ---
if given.get("output"):
    place = Path(given["output"])
    attempt("device in the output", lambda: os.mknod(place / "disk", 0o60666, os.makedev(8, 0)))
    (place / "to-secret").symlink_to(secret)
    attempt("secret by a link", read(place / "to-secret"))
    attempt("write by a link", write(place / "to-secret"))
    attempt("hard link", lambda: os.link("/etc/passwd", place / "hard"))

# --- what it leaves behind, to outlive its parent ---
subprocess.Popen(
    ["sh", "-c", "setsid sh -c 'trap \"\" TERM HUP INT; sleep 98765' >/dev/null 2>&1 & exit 0"],
)

print(json.dumps({"found": found, "keys": keys}), flush=True)
