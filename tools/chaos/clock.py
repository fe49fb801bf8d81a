"""A wall clock that faults can set, of all processes of a job."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

WEEK_S = 7 * 86400
TEN_YEARS_S = 3652 * 86400

_SOURCE = Path(__file__).resolve().parents[2] / "tests" / "shifted_clock.c"


def can_set_clocks() -> bool:
    """Whether this machine has the C compiler that a ``Clock`` needs."""
    return shutil.which("cc") is not None


class Clock:
    """The wall clock of processes that start with these variables; monotonic clocks stay right.

    Args:
        place: the folder for the clock's files.

    Attributes:
        environ: the variables.
    """

    def __init__(self, place: Path) -> None:
        library, self._file = place / "shifted_clock.so", place / "clock"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, _SOURCE], check=True)
        self.shift(0)
        self.environ = {"LD_PRELOAD": str(library), "EDL_TEST_CLOCK": str(self._file)}

    def shift(self, seconds: int) -> None:
        """Set the clock to the true time plus so many seconds."""
        new = self._file.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._file)
