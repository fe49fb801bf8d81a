"""Install packages: choose, fetch and build them without rights, then unpack them as root.

Building runs code of the packages; unpacking wheels does not. Arguments: options for pip that say
where packages are, ``--``, and what pip is to install: names, or ``-r FILE``.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_UID = 10001
_PIP = (sys.executable, "-P", "-m", "pip", "--no-input", "--disable-pip-version-check")
_NAME, _VERSION = re.compile(r"\w[\w.-]*", re.ASCII), re.compile(r"\w[\w.!+-]*", re.ASCII)


def install(options: Sequence[str], wanted: Sequence[str]) -> None:
    """Install missing packages. Raises: CalledProcessError: pip failed."""
    with tempfile.TemporaryDirectory() as folder:
        # What root writes lies where code of packages can put no link.
        listed, work = Path(folder, "listed.txt"), Path(folder, "work")
        os.chmod(folder, 0o755)
        work.mkdir(0o700)
        shutil.chown(work, _UID, _UID)
        report, wheels = work / "report.json", work / "wheels"
        environment = {**os.environ, "HOME": str(work), "TMPDIR": str(work)}
        rights = {"user": _UID, "group": _UID, "extra_groups": [], "env": environment}
        common = (*options, "--cache-dir", work / "cache")
        _pip("install", "--dry-run", "--report", report, *common, *wanted, **rights)
        packages = json.loads(report.read_text("utf-8"))["install"]
        if packages:
            lines = [*_options_of_file(wanted), *map(_exactly, packages)]
            listed.write_text("".join(f"{line}\n" for line in lines), "utf-8")
            _pip("wheel", "--no-deps", "--wheel-dir", wheels, *common, "-r", listed, **rights)
            given = ("--no-index", "--find-links", wheels, "--only-binary", ":all:")
            chosen = map(_name_and_version, packages)
            _pip("install", "--no-deps", "--no-cache-dir", *given, *chosen)


def _pip(*arguments: object, **rights: Any) -> None:
    subprocess.run([*_PIP, *map(str, arguments)], check=True, **rights)


def _options_of_file(wanted: Sequence[str]) -> list[str]:
    """Return the options in ``-r FILE``, whose index also serves the build requirements."""
    if wanted[0] != "-r":
        return []
    lines = Path(wanted[1]).read_text("ascii").splitlines()
    # The exact files have their hashes in their addresses.
    return [line for line in lines if line.startswith("-") and line != "--require-hashes"]


def _exactly(package: Mapping[str, Any]) -> str:
    """Return the file that was chosen for a package, with its hash if pip knows it."""
    place = package["download_info"]
    known = place.get("archive_info", {}).get("hashes", {}).get("sha256", "")
    address = place["url"] + (f"#sha256={known}" if known else "")
    return f"{package['metadata']['name']} @ {address}"


def _name_and_version(package: Mapping[str, Any]) -> str:
    name, version = package["metadata"]["name"], package["metadata"]["version"]
    if not (_NAME.fullmatch(name) and _VERSION.fullmatch(version)):
        sys.exit(f"ERROR: no name and version of a package: {name!r}, {version!r}")
    return f"{name}=={version}"


if __name__ == "__main__":
    at = sys.argv.index("--")
    try:
        install(sys.argv[1:at], sys.argv[at + 1 :])
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
