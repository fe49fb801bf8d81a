"""What packages that extend edl may import from it; ``docs/extending.md`` shows how.

Every other module of ``edl`` may change at any time. These modules only pass names on; what a
name does is decided and documented where it is defined.
"""

from __future__ import annotations

from edl.cli.commands import CommandEntry
from edl.core.platforms import JobPlatform
from edl.core.plugins import PlugIns

__all__ = ["CommandEntry", "JobPlatform", "PlugIns"]
