"""The names of the processes of a job, as certificates have them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self
from urllib.parse import quote, unquote

_PREFIX = "edl://job/"


class Role(StrEnum):
    """The role of a process in its job."""

    MASTER = "master"
    SERVER = "server"
    """A parameter server."""

    WORKER = "worker"
    CLIENT = "client"
    """Controls the job."""

    VIEWER = "viewer"
    """Reads the job's status, events and timeline."""

    @property
    def is_numbered(self) -> bool:
        """Whether a job may have several processes of this role."""
        return self in (Role.SERVER, Role.WORKER)


@dataclass(frozen=True, slots=True)
class Identity:
    """One process of one job.

    Attributes:
        job: name of the job.
        role: of the process.
        number: from 0, for roles that are numbered; otherwise None.

    Raises:
        ValueError: the role needs a number, or has none.
    """

    job: str
    role: Role
    number: int | None = None

    def __post_init__(self) -> None:
        if self.role.is_numbered != (self.number is not None):
            raise ValueError(f"{self.role} with number {self.number}")

    @property
    def name(self) -> str:
        """The name within the job: ``master`` or ``worker-3``."""
        return self.role.value if self.number is None else f"{self.role}-{self.number}"

    @property
    def host(self) -> str:
        """The name that a certificate is checked against, wherever the process is."""
        return f"{self.name}.edl"

    @property
    def uri(self) -> str:
        """The URI in the holder's certificate."""
        number = "" if self.number is None else f"/{self.number}"
        return f"{_PREFIX}{quote(self.job, safe='')}/{self.role}{number}"

    @classmethod
    def parse(cls, uri: str) -> Self:
        """The inverse of ``uri``.

        Raises:
            ValueError: this is not an identity, or not in the form in which ``uri`` gives it.
        """
        job, role, *number = uri.removeprefix(_PREFIX).split("/")
        found = cls(unquote(job), Role(role), int(number[0]) if number else None)
        if found.uri != uri:
            raise ValueError(f"{uri!r} is not an identity")
        return found
