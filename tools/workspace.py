"""The packages of this repository, as their ``pyproject.toml`` files describe them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

_OWN = re.compile(r"(edl-[a-z-]+|elasticdl-[a-z-]+)(?:\[([a-z,-]+)\])?")


@dataclass(frozen=True)
class Package:
    """A folder below ``packages/``.

    Attributes:
        folder: its name.
    """

    folder: str

    @cached_property
    def _project(self) -> dict[str, Any]:
        return tomllib.loads((ROOT / "packages" / self.folder / "pyproject.toml").read_text())

    @property
    def name(self) -> str:
        """The name of the distribution."""
        return str(self._project["project"]["name"])

    @property
    def modules(self) -> list[str]:
        """The names that are imported."""
        wheel = self._project["tool"]["hatch"]["build"]["targets"]["wheel"]
        return [Path(place).name for place in wheel["packages"]]

    @property
    def test_requirements(self) -> list[str]:
        """The requirements of its tests beyond its own: extras, other packages, libraries."""
        return list(self._project.get("tool", {}).get("edl", {}).get("test-requires", ()))

    def requirements(self, extras: tuple[str, ...]) -> list[str]:
        """Return what the distribution requires with these extras."""
        optional = self._project["project"].get("optional-dependencies", {})
        chosen = [optional[extra] for extra in extras]
        return [*self._project["project"].get("dependencies", ()), *(r for c in chosen for r in c)]


def packages() -> dict[str, Package]:
    """Return all packages by folder."""
    folders = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
    return {folder: Package(folder) for folder in folders}


def is_own(requirement: str) -> bool:
    """Return whether a requirement names a package of this repository."""
    match = _OWN.match(requirement)
    return match is not None and match[1] in {each.name for each in packages().values()}


def own_requirements(package: Package) -> dict[str, tuple[str, ...]]:
    """Return the folders and extras of this repository that a package's tests may stand on."""
    by_name = {each.name: each for each in packages().values()}
    found: dict[str, tuple[str, ...]] = {package.folder: ()}
    waiting = [*package.requirements(()), *package.test_requirements]
    while waiting:
        match = _OWN.match(waiting.pop())
        if match is None or match[1] not in by_name:
            continue
        other = by_name[match[1]]
        extras = tuple(match[2].split(",")) if match[2] else ()
        known = found.get(other.folder)
        if known is None or set(extras) - set(known):
            found[other.folder] = tuple(sorted({*(known or ()), *extras}))
            waiting += other.requirements(found[other.folder])
    return found
