"""The ports to builders and signatures of images, and how a process of this machine is started."""

from __future__ import annotations

from edl.adapters.local.launcher import custom_command, lacks_module, python
from edl.core.image_build import (
    BuilderEndpoint,
    BuildLogLine,
    BuildRequest,
    BuildStatus,
    BuiltImage,
)
from edl.ports.images import BuilderConnection, ImageBuilder, ImageSignatures

__all__ = [
    "BuildLogLine",
    "BuildRequest",
    "BuildStatus",
    "BuilderConnection",
    "BuilderEndpoint",
    "BuiltImage",
    "ImageBuilder",
    "ImageSignatures",
    "custom_command",
    "lacks_module",
    "python",
]
