"""Write what an image contains: its Python and Debian packages, as CycloneDX 1.5 in JSON.

Argument: the file to write. It has no time and no random number, so equal images have equal ones.
"""

import importlib.metadata
import json
import os
import re
import sys
from pathlib import Path
from urllib.parse import quote

Component = dict[str, object]


def python_packages() -> list[Component]:
    """Return the packages that the Python of this image finds."""
    found: dict[str, Component] = {}
    for package in importlib.metadata.distributions():
        facts = package.metadata
        if not facts["Name"]:
            continue
        name = re.sub(r"[-_.]+", "-", facts["Name"]).lower()
        purl = f"pkg:pypi/{quote(name)}@{quote(package.version, safe='')}"
        one: Component = {"type": "library", "name": name, "version": package.version}
        licence = facts.json.get("license_expression", "")
        if licence:
            one["licenses"] = [{"expression": licence}]
        found.setdefault(purl, {**one, "purl": purl, "bom-ref": purl})
    return [found[purl] for purl in sorted(found)]


def debian_packages(status: str) -> list[Component]:
    """Return the packages in the text of dpkg's status file."""
    found: dict[str, Component] = {}
    for paragraph in status.split("\n\n"):
        lines = (line.partition(": ") for line in paragraph.splitlines() if line[:1].strip())
        facts = {name: value for name, _, value in lines}
        if not facts.get("Status", "").endswith(" installed"):
            continue
        name, version = facts["Package"], facts["Version"]
        architecture = facts.get("Architecture", "")
        purl = f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?arch={architecture}"
        one = {"type": "library", "name": name, "version": version, "purl": purl}
        found[purl] = {**one, "bom-ref": purl}
    return [found[purl] for purl in sorted(found)]


def main(target: Path, status: Path = Path("/var/lib/dpkg/status")) -> None:
    """Write the file."""
    dpkg = status.read_text("utf-8", "replace") if status.exists() else ""
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {"type": "container", "name": "edl", "bom-ref": "image"},
            "tools": {"components": [{"type": "application", "name": "edl_builder"}]},
        },
        "components": [*python_packages(), *debian_packages(dpkg)],
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bom, indent=1) + "\n")
    os.chmod(target, 0o644)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
