"""How many examples the fuzz tests try: ``EDL_FUZZ_EXAMPLES=100000 pytest …`` tries more."""

from __future__ import annotations

import os


def examples(usual: int) -> int:
    """The number of examples of a test that usually tries so many."""
    return int(os.environ.get("EDL_FUZZ_EXAMPLES", usual))
