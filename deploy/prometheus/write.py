"""Write the rules into the client's package, which gives them to its own Prometheus.

``--check`` only compares. Run by ``./dev generate``: change rules.yml beside this file, not the
copy.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
COPY = HERE.parents[1] / "packages" / "client" / "src" / "edl" / "prometheus" / "rules.yml"


def main() -> int:
    text = (HERE / "rules.yml").read_text()
    if "--check" not in sys.argv:
        COPY.parent.mkdir(exist_ok=True)
        COPY.write_text(text)
    elif not COPY.exists() or COPY.read_text() != text:
        print("stale rules in the client's package, run ./dev generate", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
