"""Building an image: the request, the progress and the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edl.core.job_status import Failure
from edl.core.quantities import duration, size
from edl.core.submission import Submission
from edl_runtime.model.git_source import GitSource


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """The sources of an image, and where to push it.

    Attributes:
        zoo: a folder of this machine, or a repository.
        repository: registry/path, without tag.
        tag: besides the digest; may be empty.
        base_image: empty: the builder's own.
        credential: name of a git credential of the builder.
    """

    zoo: str | GitSource
    repository: str
    tag: str = ""
    base_image: str = ""
    credential: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BuilderEndpoint:
    """The builder of an image, and how to reach or configure it.

    Attributes:
        address: host:port; empty: a builder of this machine, for one call.
        ca: file of certificates by which the service is trusted; empty: this machine's.
        identity: file with a certificate and its key, for services that ask for one.
        config: settings file of the builder of this machine.
        network: of its build steps; empty: the engine's default.
        engine: URL of its engine; empty: the usual one.
        from_project: a project file names it, so it gets only what is meant for its host.
    """

    address: str = ""
    ca: str = ""
    identity: str = ""
    config: str = ""
    network: str = ""
    engine: str = ""
    from_project: bool = False

    @property
    def is_local(self) -> bool:
        return not self.address


def service_of(job: Submission) -> BuilderEndpoint:
    """Return the builder that a job uses."""
    return BuilderEndpoint(
        address=job.builder,
        ca=job.builder_ca,
        identity=job.builder_identity,
        config=job.builder_config,
        network=job.build_network,
        engine=job.engine,
        from_project=job.builder_from_project,
    )


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image that can be pulled.

    Attributes:
        name: repository@sha256:...
        nbytes: what a puller downloads.
        reused: the registry had it; nothing was built.
    """

    name: str
    build: str
    key: str
    nbytes: int
    seconds: float
    layers: int
    cached_layers: int
    reused: bool

    def to_dict(self) -> dict[str, object]:
        return {
            "image": self.name,
            "build": self.build,
            "key": self.key,
            "nbytes": self.nbytes,
            "seconds": self.seconds,
            "layers": self.layers,
            "cached_layers": self.cached_layers,
            "reused": self.reused,
        }

    def __str__(self) -> str:
        if self.reused:
            return f"{self.name} is in the registry already; nothing was built"
        steps = f"{self.layers} steps, {self.cached_layers} of them cached"
        return f"{self.name} built in {duration(self.seconds)}, {steps}, {size(self.nbytes)}"


@dataclass(frozen=True, slots=True)
class BuildStatus:
    """The state of a build at one moment.

    Attributes:
        phase: a word of ``PHASES``.
        position: from 1 while it waits.
        waiting: callers attached to it.
    """

    id: str
    phase: str
    position: int = 0
    waiting: int = 0
    image: BuiltImage | None = None
    failure: Failure | None = None

    @property
    def is_final(self) -> bool:
        return self.phase in ("done", "failed", "cancelled")

    @property
    def words(self) -> str:
        known = PHASES.get(self.phase, self.phase)
        place = f", number {self.position}" if self.position else ""
        others = f", with {self.waiting - 1} others" if self.waiting > 2 else ""
        others = ", with another caller" if self.waiting == 2 else others
        return f"{known}{place}{others}"


PHASES: Mapping[str, str] = {
    "starting": "starting a builder",
    "queued": "queued",
    "receiving": "sending the model zoo",
    "fetching": "fetching the repository",
    "resolving": "looking in the registry",
    "building": "building",
    "pushing": "pushing",
    "pulling": "pulling the image",
    "done": "done",
    "failed": "failed",
    "cancelled": "cancelled",
}


@dataclass(frozen=True, slots=True)
class BuildLogLine:
    """A line of a build's log; ``number`` counts from 1."""

    number: int
    text: str
