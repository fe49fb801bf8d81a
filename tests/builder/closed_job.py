"""A job in containers, and the identities of its processes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import Edl

from edl_proto.identity.credentials import Credentials, Peer
from edl_proto.identity.names import Role
from edl_runtime.identity.folder import IdentityFolder

from .conftest import of_jobs
from .docker_environment import DockerEnvironment


@dataclass
class Closed:
    """The job: two workers and a parameter server, at work until it is stopped."""

    edl: Edl
    docker_env: DockerEnvironment
    other: IdentityFolder

    @property
    def place(self) -> Path:
        return self.edl.job_dir("closed")

    @property
    def identities(self) -> IdentityFolder:
        return IdentityFolder(self.place / "identity", "closed")

    @property
    def address(self) -> str:
        return str(json.loads((self.place / "master.json").read_bytes())["address"])

    @property
    def server(self) -> str:
        (found,) = self.edl.written_status("closed")["servers"]
        return str(found["address"])

    def as_(self, role: Role, number: int | None, to: Role, of: IdentityFolder) -> Peer:
        peer = Credentials(of.provide(role, number))
        return peer.to(to, 0 if to.is_numbered else None)

    def steps(self) -> int:
        return int(self.edl.written_status("closed").get("progress", {}).get("steps", 0))

    def containers(self, role: str) -> list[Any]:
        return sorted(of_jobs(self.docker_env, self.edl, role), key=lambda each: str(each.name))
