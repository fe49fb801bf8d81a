"""The program that installs packages in a build: their code never runs as root."""

from __future__ import annotations

import importlib.resources
import io
import tarfile
from pathlib import Path

from edl_builder import in_image

from .docker_environment import DockerEnvironment

_BACKEND = """
import os, zipfile

NAME = "whoami_at_build-1.0"

def _note(what):
    text = f"{what} {os.getuid()} {os.access('/usr/local', os.W_OK)}"
    with open("/tmp/who-built", "a") as file:
        file.write(text + "\\n")

def build_wheel(folder, settings=None, metadata=None):
    _note("build")
    wheel = f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, wheel), "w") as archive:
        archive.writestr("whoami_at_build.py", "here = True\\n")
        archive.writestr(f"{NAME}.dist-info/METADATA", METADATA)
        archive.writestr(f"{NAME}.dist-info/WHEEL", WHEEL)
        archive.writestr(f"{NAME}.dist-info/RECORD", "")
    return wheel

def prepare_metadata_for_build_wheel(folder, settings=None):
    _note("metadata")
    os.mkdir(os.path.join(folder, f"{NAME}.dist-info"))
    with open(os.path.join(folder, f"{NAME}.dist-info", "METADATA"), "w") as file:
        file.write(METADATA)
    return f"{NAME}.dist-info"

WHEEL = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
METADATA = "Metadata-Version: 2.1\\nName: whoami-at-build\\nVersion: 1.0\\n"
"""
_FILES = {
    "backend.py": _BACKEND,
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\n'
    'backend-path = ["."]\n',
    "PKG-INFO": "Metadata-Version: 2.1\nName: whoami-at-build\nVersion: 1.0\n",
}


_TWICE = """
set -e
export PIP_BREAK_SYSTEM_PACKAGES=1
python3 -B /given/install.py -- -r /given/requirements.txt
python3 -B /given/install.py --no-index -- whoami-at-build
cat /tmp/who-built
ls /tmp
cd /
python3 -B - <<END
import os, pathlib, whoami_at_build
place = pathlib.Path(whoami_at_build.__file__)
print(place.stat().st_uid, *place.parent.glob("whoami_at_build-1.0.dist-info/direct_url.json"))
END
"""


def _source(folder: Path) -> None:
    with tarfile.open(folder / "whoami-at-build-1.0.tar.gz", "w:gz") as tar:
        for name, text in _FILES.items():
            info = tarfile.TarInfo(f"whoami-at-build-1.0/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))


def test_a_package_is_built_without_rights_and_unpacked_as_root(
    docker_env: DockerEnvironment, tmp_path: Path
) -> None:
    folder = tmp_path / "packages"
    folder.mkdir()
    _source(folder)
    (folder / "requirements.txt").write_text("--no-index\n--find-links /given\nwhoami-at-build\n")
    program = (importlib.resources.files(in_image) / "install.py").read_text()
    (folder / "install.py").write_text(program)
    (folder / "twice.sh").write_text(_TWICE)
    folder.chmod(0o755)
    client = docker_env.client()
    try:
        said = client.containers.run(
            docker_env.bare,
            ["sh", "/given/twice.sh"],
            volumes={str(folder): {"bind": "/given", "mode": "ro"}},
            user="0",
            network_mode="none",
            remove=True,
            stderr=True,
        ).decode()
    finally:
        client.close()
    lines = said.splitlines()
    built = [line for line in lines if line.startswith(("build ", "metadata "))]
    assert {line.split(" ", 1)[1] for line in built} == {"10001 False"}, said
    assert any(line.startswith("build ") for line in built)
    assert "Requirement already satisfied: whoami-at-build" in said, "nothing is installed twice"
    assert lines[-2:] == ["who-built", "0"], "root owns it, and nothing else is left"
