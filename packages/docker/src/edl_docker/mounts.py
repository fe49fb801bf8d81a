"""The mounts of a job's container: exactly the files and folders that the job names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from edl.plugins.errors import usage
from edl.plugins.submissions import Submission, scheme
from edl_runtime.image_names import IMAGE_ZOO

_MAGIC = re.compile(r"[*?\[{]")
_NEVER_WITHIN = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run"),
    *("/sbin", "/sys", "/usr", "/var/lib/docker", "/var/run", IMAGE_ZOO),
)
_NEVER_THEMSELVES = ("/", "/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var")
_YET = ("/dev/shm/", "/usr/local/share/", "/run/media/")


@dataclass(frozen=True, slots=True)
class BindMount:
    """A place of this machine that the container sees under the same path."""

    path: str
    writable: bool = False


def binds(job: Submission, home: str, jobs: str) -> tuple[BindMount, ...]:
    """Return the places of a job, its own directory aside.

    Args:
        home: the user's home directory, which is never shown as a whole.
        jobs: the folder of all jobs, whose directories have keys and commands.

    Raises:
        Problem: USAGE; one of them holds more than a container should see.
    """
    found: dict[str, BindMount] = {}
    for option, bind in _find_mounts(job):
        check(option, bind, home, jobs)
        known = found.get(bind.path, bind)
        found[bind.path] = BindMount(bind.path, bind.writable or known.writable)
    return tuple(found[path] for path in sorted(found))


def _find_mounts(job: Submission) -> Iterator[tuple[str, BindMount]]:
    for option in ("data", "validation_data"):
        for place in getattr(job, option):
            if not scheme(place):
                yield option, BindMount(_fixed_part(place))
    for option in ("trained_model", "init_from"):
        place = getattr(job, option)
        if place and not scheme(place):
            yield option, BindMount(place)
    if job.output and not scheme(job.output):
        # The result appears in its folder in one step, by a change of its name.
        yield "output", BindMount(posixpath.dirname(job.output), writable=True)
    for option in ("checkpoint_dir", "tensorboard_dir", "data_cache"):
        place = getattr(job, option)
        if place and not scheme(place):
            yield option, BindMount(place, writable=True)


def _fixed_part(pattern: str) -> str:
    """Return the deepest folder (or file) that a pattern is about."""
    magic = _MAGIC.search(pattern)
    return posixpath.dirname(pattern[: magic.start()]) or "/" if magic else pattern


def check(option: str, bind: BindMount, home: str, jobs: str) -> None:
    """Raises: Problem: USAGE; the place holds more than a container should see."""
    path = bind.path
    within = any(f"{path}/".startswith(f"{each}/") for each in _NEVER_WITHIN)
    within = within and not path.startswith(_YET)
    if within or path in (*_NEVER_THEMSELVES, home) or _shows_a_job(path, jobs):
        flag = "--" + option.replace("_", "-")
        raise usage(
            f"{flag}: {path} cannot be mounted into containers as a whole",
            where=flag,
            remedy="Put it into a separate folder"
            + (f": {path.rstrip('/')}/results/NAME." if bind.writable else "."),
        )


def _shows_a_job(path: str, jobs: str) -> bool:
    """Return whether the whole directory of a job is to be seen there, or its keys are."""
    if f"{jobs}/".startswith(f"{path}/"):
        return True
    if not path.startswith(f"{jobs}/"):
        return False
    _, *inside = path.removeprefix(f"{jobs}/").split("/")
    return not inside or inside[0] == "identity"
