"""axe-core, which finds what keeps people from using a page; from npm, once for a machine."""

from __future__ import annotations

import shutil
import subprocess
import tarfile

from dev_cache import folder, lock

from edl_testing.requirements import do_without
from page.browser import Tab

_PACKAGE = "axe-core@4.14.1"
_RUN = """
axe.run().then(found => ({
  passed: found.passes.length,
  wrong: found.violations.map(v => `${v.impact}: ${v.id}: ${v.nodes.map(n => n.html).join(' ')}`),
}))
"""


def findings(tab: Tab) -> list[str]:
    """What is wrong with the page that a tab shows. Skips the test where axe-core cannot be had."""
    tab.evaluate(f"{_source()}; 0")
    found = tab.evaluate(_RUN)
    assert found["passed"] > 10, "it has looked"
    wrong: list[str] = found["wrong"]
    return wrong


def _source() -> str:
    kept = folder() / f"{_PACKAGE}.min.js"
    with lock("axe-core"):
        if not kept.exists():
            npm = shutil.which("npm")
            if npm is None:
                do_without("npm is not installed, so axe-core cannot be had (apt install npm)")
            command = [npm, "pack", "--silent", "--pack-destination", str(folder()), _PACKAGE]
            packed = subprocess.run(command, capture_output=True, text=True, check=False)
            if packed.returncode != 0:
                do_without(f"npm has no {_PACKAGE} for this machine: {packed.stderr[-300:]}")
            archive = folder() / packed.stdout.strip()
            with tarfile.open(archive) as files:
                source = files.extractfile("package/axe.min.js")
                assert source is not None
                kept.write_bytes(source.read())
            archive.unlink()
    return kept.read_text()
