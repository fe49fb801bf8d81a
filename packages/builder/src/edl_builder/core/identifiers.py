"""Names of builds, callers and content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

BuildId = NewType("BuildId", str)
Caller = NewType("Caller", str)
"""The name of a tenant, or the address of the peer if the service is open."""

Key = NewType("Key", str)
"""The hash of content, base and requirements: equal keys, equal images. 64 hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class BuildIdentity:
    """Requests with equal identities become one build."""

    repository: str
    key: Key
    tag: str

    @property
    def content(self) -> tuple[str, Key]:
        """The content, of which only one build runs at a time."""
        return self.repository, self.key
