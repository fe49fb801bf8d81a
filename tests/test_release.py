"""Distributions: one version, and a folder of wheels is all that an installation needs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import release
from conftest import ROOT

from edl_testing.requirements import do_without
from tests import dev_cache

PYTHONS = ("3.11", "3.12", "3.13")
UV = Path(sys.executable).parent / "uv"
INSTALLED = ("edl-client[convert,docker,keras,kubernetes,mlflow,sql]", "edl-builder", "edl-master")
"""With all that they need: proto, runtime and recordio, and no TensorFlow."""
_PLUG_INS = ("edl.commands", "edl.queries", "edl.trackers", "edl.platforms")

CHECK = f"""
import importlib.metadata as metadata, sys
import edl, edl_builder.app, edl_master.app.master, edl_proto, elasticdl, recordio
for name in {release.RELEASED}:
    found = metadata.distribution("edl-" + name)
    assert found.version == edl.__version__ == edl_proto.__version__, name
    assert any("LICENSE" in str(file) for file in found.files), name
    for needed in found.requires or ():
        own = needed.partition("==")[0].partition("[")[0]
        assert not own.startswith("edl-") or "==" + edl.__version__ in needed, needed
for group in {_PLUG_INS}:
    for plug_in in metadata.entry_points(group=group):
        plug_in.load()
assert "tensorflow" not in sys.modules
needs = metadata.requires("edl-worker")
assert any(one.startswith("tensorflow-cpu") and "extra == 'cpu'" in one for one in needs), needs
"""


def interpreter(version: str) -> Path | None:
    """Return a Python of this version on this machine: on the path, or one of pyenv's."""
    on_path = shutil.which(f"python{version}")
    of_pyenv = Path.home().glob(f".pyenv/versions/{version}.*/bin/python")
    for python in ([Path(on_path)] if on_path else []) + sorted(of_pyenv):
        found = subprocess.run([python, "--version"], capture_output=True, check=False)
        if found.returncode == 0 and f" {version}.".encode() in found.stdout:
            return python
    return None


def install(python: Path, *wanted: str) -> str:
    """Install from the cache of packages, and from the network what is missing there.

    Returns:
        What uv says about it.
    """
    command = (str(UV), "pip", "install", "--python", str(python), *wanted)
    done = subprocess.run([*command, "--offline"], capture_output=True, text=True, check=False)
    if done.returncode:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "Failed to fetch" in done.stderr:
            do_without(f"its packages are neither in the cache nor to be had: {done.stderr}")
        assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    release.build(folder, ("wheel",))
    return folder


@pytest.mark.parametrize("version", PYTHONS)
def test_wheels_install_into_an_empty_environment(
    version: str, wheels: Path, tmp_path: Path
) -> None:
    python = required_interpreter(version)
    place = tmp_path / "venv"
    subprocess.run([UV, "venv", "-q", "--python", python, place], check=True)
    inside = place / "bin" / "python"
    install(inside, "--find-links", str(wheels), *INSTALLED)
    for name in ("worker", "compat", "serve", "tune"):  # without TensorFlow
        install(inside, "--no-deps", str(next(wheels.glob(f"edl_{name}-*.whl"))))
    environ = {"PATH": str(place / "bin"), "HOME": str(tmp_path)}
    subprocess.run([inside, "-I", "-c", CHECK], check=True, env=environ, cwd=tmp_path)
    help_ = subprocess.run(
        ["edl", "--help"], env=environ, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert help_.stdout.startswith("Examples:")


FIRST_BLOCK = re.search(
    r"^```\n(.*?)^```", (ROOT / "docs" / "installing.md").read_text(), re.MULTILINE | re.DOTALL
)
assert FIRST_BLOCK is not None
RELEASE, INSTALL, DOCTOR = (line.partition(" #")[0].strip() for line in FIRST_BLOCK[1].splitlines())
"""The commands of docs/installing.md, word for word."""

DOCUMENTED = sorted(
    {
        command
        for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
        for command in re.findall(
            r"pip install --find-links dist(?: '[^']+'| edl-\w+)+", path.read_text()
        )
    }
)
"""All commands of the documents that install from ``dist/``."""


@pytest.fixture
def person(wheels: Path, tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs a command in a shell, beside ``dist/``, with real pip.

    The environment has the packages of others, and none of this repository: pip finds that what
    our wheels require is there. It takes minutes to unpack TensorFlow, and uv links to its cache.
    """
    (tmp_path / "dist").symlink_to(wheels)
    (pip,) = (ROOT / "tools").glob("pip-*.whl")

    def person(python: Path, command: str, **environ: str) -> str:
        place = tmp_path / "edl"
        if not place.exists():
            # Debian's Python comes without ensurepip; a wheel of pip can install itself.
            subprocess.run([python, "-m", "venv", "--without-pip", place], check=True)
            inside = place / "bin" / "python"
            install_pip = [inside, f"{pip}/pip", "install", "-q", "--no-index"]
            subprocess.run([*install_pip, pip], check=True)
            _install_packages_of_others(inside, wheels, tmp_path)
        done = subprocess.run(
            ["bash", "-c", command],
            env={
                **os.environ,
                "PATH": f"{place / 'bin'}:/usr/bin:/bin",
                "HOME": str(tmp_path),
                "PIP_CACHE_DIR": str(dev_cache.folder() / "pip"),
                # Versions that fit each other, whatever is published meanwhile.
                "PIP_CONSTRAINT": str(_unhashed_lock(tmp_path)),
                **environ,
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        if "Failed to establish a new connection" in done.stderr:
            do_without(f"no package index can be reached: {done.stderr}")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return person


def required_interpreter(version: str) -> Path:
    python = interpreter(version)
    if python is None:
        do_without(f"this machine has no Python {version}, which wheels must install into")
    return python


def test_the_document_has_the_commands_that_are_tried_here() -> None:
    assert (RELEASE, DOCTOR) == ("./dev release", "edl doctor")
    assert INSTALL in DOCUMENTED
    assert len(DOCUMENTED) >= 4


@pytest.fixture
def resolve(wheels: Path, tmp_path: Path) -> Callable[[Path, str], str]:
    """Return a function that finds what a documented command would install, with uv.

    uv takes half a second for what takes pip eight; that pip installs our wheels, one test shows.
    """

    def resolve(python: Path, command: str) -> str:
        place = tmp_path / "empty"
        subprocess.run([UV, "venv", "-q", "--python", python, place], check=True)
        options = ("--find-links", str(wheels), "--constraint", str(_unhashed_lock(tmp_path)))
        return install(
            place / "bin" / "python", "--dry-run", *options, *_read_requirements(command)
        )

    return resolve


def _install_packages_of_others(python: Path, wheels: Path, place: Path) -> None:
    """Install with uv what the documented command does, and uninstall what is ours."""
    options = ("--find-links", str(wheels), "--constraint", str(_unhashed_lock(place)))
    install(python, *options, *_read_requirements(INSTALL))
    ours = [f"edl-{name}" for name in release.RELEASED]
    subprocess.run([UV, "pip", "uninstall", "-q", "--python", python, *ours], check=True)


def _read_requirements(command: str) -> list[str]:
    """Return what a documented command installs."""
    return shlex.split(command.removeprefix("pip install --find-links dist "))


def _unhashed_lock(place: Path) -> Path:
    """Write the lock without hashes, which would be demanded of our own wheels too."""
    versions = place / "versions.txt"
    lock = (ROOT / "requirements.lock").read_text()
    versions.write_text(re.sub(r" \\\n +--hash=\S+", "", lock))
    return versions


@pytest.mark.parametrize("version", PYTHONS)
def test_all_that_the_documented_command_needs_is_found(
    version: str, resolve: Callable[[Path, str], str]
) -> None:
    """Resolve for each Python in an empty environment; one test installs, which takes 2 GB."""
    found = resolve(required_interpreter(version), INSTALL)
    for name in ["client", "convert", "master", "worker", "compat", "proto", "runtime", "recordio"]:
        assert f" + edl-{name}=={release.version()}" in found.splitlines()
    assert " + tensorflow-cpu==" in found


@pytest.mark.parametrize("command", sorted({*DOCUMENTED} - {INSTALL}))
def test_all_that_other_documented_commands_need_is_found(
    command: str, resolve: Callable[[Path, str], str]
) -> None:
    found = resolve(Path(sys.executable), command)
    assert f"=={release.version()}" in found
    assert "does not have an extra" not in found


def test_the_documented_commands_install_what_runs_jobs(person: Callable[..., str]) -> None:
    """On the newest Python that is here."""
    version = next(one for one in reversed(PYTHONS) if interpreter(one))
    python = required_interpreter(version)
    installed = person(python, INSTALL, PIP_NO_COMPILE="1")
    (ours,) = re.findall("^Successfully installed (.*)", installed, re.MULTILINE)
    assert all(one.startswith("edl-") for one in ours.split()), "the lock has all else"
    assert f"edl-client-{release.version()}" in ours.split()
    # The doctor gives up an import that takes minutes, as the first one may on a busy machine.
    person(python, "python -c 'import tensorflow, keras'", PYTHONDONTWRITEBYTECODE="")
    said = person(python, DOCTOR)
    assert re.search(rf"^ok +edl-worker +{re.escape(release.version())}$", said, re.MULTILINE)
    assert re.search(r"^ok +tensorflow ", said, re.MULTILINE)
    assert f"Python {version}." in said


def test_every_locked_distribution_has_a_hash() -> None:
    """Both pip with --require-hashes and uv, which verifies the hashes that it finds."""
    lock = (ROOT / "requirements.lock").read_text()
    pinned = re.split(r"\n(?=\S)", lock.strip())
    assert len(pinned) > 100
    assert [one for one in pinned if not re.match(r"\S+==\S.*\n +--hash=sha256:", one)] == []
    assert "--require-hashes" in (ROOT / "dev").read_text()


def test_there_is_one_version() -> None:
    assert release.stale() == [], "./dev release stamp"
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == release.version(), "the changelog begins with what comes next"


def test_a_stamp_reaches_every_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pattern, _ in release._PLACES:
        for path in ROOT.glob(pattern):
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    before = release.version()
    release.stamp("7.8.9")
    assert release.version() == "7.8.9"
    assert release.stale() == []
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        assert f'=={before}"' not in path.read_text(), path
    dependencies = (tmp_path / "packages" / "client" / "pyproject.toml").read_text()
    assert dependencies.count("==7.8.9") == 33
    assert release.stamp("7.8.9") == []
