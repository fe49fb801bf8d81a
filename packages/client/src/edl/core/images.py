"""The access to builders and signatures of images, which ``edl-images`` adds.

An entry point of the group ``edl.images`` names a module that implements a port of
``ports.images``.
"""

from __future__ import annotations

from types import ModuleType

from edl.core.plugins import PlugIns

IMAGES = PlugIns(
    "edl.images", "image", ModuleType, {"builder": "edl-images", "verifier": "edl-images"}
)
