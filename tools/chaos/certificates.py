"""Certificates that live for seconds, so that all are renewed again and again under faults."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

_SITE = """
import datetime
from edl_runtime.identity import folder

folder.LIFETIME = datetime.timedelta(seconds={seconds})
folder.RENEW_EVERY_S = {seconds} / 20
folder.IdentityFolder.__init__.__defaults__ = (folder.LIFETIME,)
sign = folder.IdentityFolder._sign

def sign_and_note(self, identities):
    identities = list(identities)
    sign(self, identities)
    with open({signed!r}, "a") as file:
        file.write("".join(f"{{self._job}} {{one.name}}\\n" for one in identities))

folder.IdentityFolder._sign = sign_and_note
"""
"""Python reads it at the start of each process. The product has no setting for this: nobody needs
certificates that live for less than a day."""


class ShortLivedCertificates:
    """Has the processes of jobs sign certificates that live for so many seconds.

    Args:
        place: a folder that does not exist yet.
        seconds: how long; a third of it is left when they are renewed.
    """

    def __init__(self, place: Path, seconds: float) -> None:
        place.mkdir()
        self._place = place
        self._signed = place / "signed"
        self._signed.touch()
        site = _SITE.format(seconds=seconds, signed=str(self._signed))
        (place / "sitecustomize.py").write_text(site)

    @property
    def environ(self) -> Mapping[str, str]:
        """Variables for all processes of a job."""
        others = os.environ.get("PYTHONPATH", "")
        return {"PYTHONPATH": os.pathsep.join(filter(None, (str(self._place), others)))}

    def renewals(self, job: str) -> int:
        """How many certificates of a job were signed again."""
        signed = Counter(self._signed.read_text().splitlines())
        return sum(count - 1 for line, count in signed.items() if line.split()[0] == job)
