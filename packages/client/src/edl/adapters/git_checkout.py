"""Model zoos in git repositories, fetched to this machine with the user's own git.

Kept below ``$EDL_HOME/zoos``: the objects of each repository, and a folder for each commit that was
used. A commit that is there is not asked for again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.local import job_directory, ownership
from edl_runtime.model.git_source import GitSource

_FETCH_S = 300.0
_POLL_S = 0.1
_KEEP_S = 30 * 86400.0
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LINES = 10


def fetch(zoo: GitSource, root: Path | None = None) -> Path:
    """Return the zoo's folder at the ref's present commit. Callers must not change it.

    Raises:
        EdlError: SOURCE_UNREACHABLE, MODEL_NOT_FOUND (no such folder), FORBIDDEN, or DISK_FULL.
    """
    name = str(zoo.url).rstrip("/").rpartition("/")[2].removesuffix(".git")
    mark = hashlib.sha256(str(zoo.url).encode()).hexdigest()[:16]
    place = (root or job_directory.home() / "zoos") / f"{name}-{mark}"
    place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    place.mkdir(mode=0o755, exist_ok=True)
    if not ownership.is_own(place):
        raise EdlError(
            ErrorCode.FORBIDDEN,
            "other users can change the copies of repositories, whose code would run as you",
            where=str(place),
            remedy="Set EDL_HOME to a folder that only you can write.",
        )
    with _lock(place):
        checkout = _checkout(zoo, place)
        _forget_old(place, checkout)
    folder = checkout / zoo.folder if zoo.folder else checkout
    if not folder.is_dir():
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"the repository has no folder {zoo.folder}",
            where=str(zoo),
            remedy="Correct the folder after the colon in --model-zoo.",
        )
    return folder


def _checkout(zoo: GitSource, place: Path) -> Path:
    if _COMMIT.fullmatch(zoo.ref) and (place / zoo.ref).is_dir():
        os.utime(place / zoo.ref)
        return place / zoo.ref
    git = ["git", f"--git-dir={place / 'git'}", "-c", "core.hooksPath=/dev/null"]
    git += ["-c", "protocol.allow=never", "-c", "protocol.https.allow=always"]
    # Our lock is held, so these are left by a git that was killed, and would block the next one.
    for left in (place / "git").rglob("*.lock"):
        left.unlink(missing_ok=True)
    if not (place / "git" / "HEAD").exists():
        _run(zoo, ["git", "init", "--quiet", "--bare", "--template=", str(place / "git")])
    what = ["--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules"]
    _run(zoo, [*git, "fetch", *what, "--end-of-options", str(zoo.url), zoo.ref or "HEAD"])
    commit = _run(zoo, [*git, "rev-parse", "--verify", "FETCH_HEAD^{commit}"]).strip()
    checkout = place / commit
    if checkout.is_dir():
        os.utime(checkout)
        return checkout
    draft = Path(tempfile.mkdtemp(prefix=".new-", dir=place))
    try:
        draft.chmod(0o755)
        index = {"GIT_INDEX_FILE": str(place / "git" / "index.new")}
        tree = [f"--work-tree={draft}", "checkout", "--quiet", "--force", commit, "--", "."]
        _run(zoo, [*git, *tree], index)
        _check_links(zoo, draft)
        draft.rename(checkout)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        (place / "git" / "index.new").unlink(missing_ok=True)
    return checkout


def _check_links(zoo: GitSource, checkout: Path) -> None:
    """Refuse a repository with links to files of the user, which a build would pack and push."""
    root = checkout.resolve()
    for folder, folders, names in os.walk(root):
        for path in (Path(folder) / name for name in (*folders, *names)):
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                raise EdlError(
                    ErrorCode.FORBIDDEN,
                    "a link in the repository leads out of it",
                    where=f"{zoo}: {path.relative_to(root)}",
                    remedy="Put the file itself into the repository.",
                )


@contextlib.contextmanager
def _lock(place: Path) -> Iterator[None]:
    with (place / "lock").open("w") as lock:
        deadline = time.monotonic() + 2 * _FETCH_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(_POLL_S)
                    continue
                raise EdlError(
                    ErrorCode.SOURCE_UNREACHABLE,
                    "another process has been fetching this model zoo for too long",
                    where=str(place),
                    remedy="Find the edl process that hangs: fuser lock in this folder shows it.",
                ) from None
        yield


def _forget_old(place: Path, but: Path) -> None:
    for each in place.iterdir():
        old = _COMMIT.fullmatch(each.name) and time.time() - each.stat().st_mtime > _KEEP_S
        if each != but and (old or each.name.startswith(".new-")):
            shutil.rmtree(each, ignore_errors=True)


def _run(zoo: GitSource, command: list[str], environment: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            # The user's own settings and credential helpers count; git never asks for a password.
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_FETCH_S,
            check=False,
        )
    except FileNotFoundError:
        raise _unreachable(zoo, "git is not installed", "Install git.", "") from None
    except subprocess.TimeoutExpired:
        what = f"git did not finish within {_FETCH_S:.0f} s"
        raise _unreachable(
            zoo, what, "Try again, or clone the repository and name the folder.", ""
        ) from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        what = lines[-1] if lines else f"git ended with exit code {done.returncode}"
        remedy = "Check the URL and the ref; git fetch must work there without asking for anything."
        raise _unreachable(zoo, what, remedy, "\n".join(lines[-_LINES:]))
    return done.stdout


def _unreachable(zoo: GitSource, what: str, remedy: str, detail: str) -> EdlError:
    return EdlError(
        ErrorCode.SOURCE_UNREACHABLE,
        f"the model zoo cannot be fetched: {what}",
        where=str(zoo),
        remedy=remedy,
        detail=detail,
    )
