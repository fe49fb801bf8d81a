"""The record of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call that has ended.

    Attributes:
        tenant: empty if none was found.
        method: full name, as ``/package.Service/Method``.
        peer: where it came from, as gRPC writes it.
        about: what it was about: the id of a build, a repository.
        status: name of the gRPC status, or of the exception.
        seconds: how long it was open.
    """

    tenant: str
    method: str
    peer: str
    about: Mapping[str, str]
    status: str
    seconds: float

    @property
    def is_audited(self) -> bool:
        """True if it changed something or was refused; successful queries are not recorded."""
        return self.status != "OK" or self.method.rpartition("/")[2] in ("Build", "Cancel")

    @property
    def is_refusal(self) -> bool:
        """True for a call that any caller can repeat at will."""
        return not self.tenant or self.status == "RESOURCE_EXHAUSTED"
