"""The command ``edl``, whose jobs keep no timeline: the peer that shows what that costs."""

from __future__ import annotations

import os
from pathlib import Path

from edl.__main__ import main

_PATCH = Path(__file__).with_name("untimed")

if __name__ == "__main__":
    # Every process of a job has the environment of the command.
    os.environ["PYTHONPATH"] = str(_PATCH)
    main()
