"""Write the rules beside this file to where they are used; ``--check`` only compares.

That is the client's package, for its own Prometheus, and an object for the Prometheus operator. Run
by ``./dev generate``.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]

_OBJECT = """\
# Written by ./dev generate from deploy/prometheus/rules.yml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: edl}
spec:
"""


def main() -> int:
    rules = (FOLDER / "rules.yml").read_text()
    wanted = {
        ROOT / "packages/watch/src/edl_watch/prometheus_rules/rules.yml": rules,
        ROOT / "deploy/kubernetes/monitoring/rules.yaml": _OBJECT + textwrap.indent(rules, "  "),
    }
    stale = []
    for path, text in wanted.items():
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(str(path.relative_to(ROOT)))
    if stale:
        print(f"stale rules, run ./dev generate: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
