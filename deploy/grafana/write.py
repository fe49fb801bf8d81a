"""Write the dashboards as JSON next to this file; ``--check`` only compares.

Run by ``./dev generate``. To load one, import the file in Grafana.
"""

from __future__ import annotations

import sys
from pathlib import Path

import builder_dashboard
import fleet_dashboard
import job_dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

FOLDER = Path(__file__).resolve().parent
DASHBOARDS = {"job": job_dashboard, "fleet": fleet_dashboard, "builder": builder_dashboard}


def main() -> int:
    stale = []
    for name, module in DASHBOARDS.items():
        built = module.build().build()
        text = JSONEncoder(sort_keys=True, indent=2).encode(built) + "\n"
        path = FOLDER / f"{name}.json"
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        print(f"stale dashboards, run ./dev generate: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
