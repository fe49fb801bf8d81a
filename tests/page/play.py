"""Shows the page of a made-up job, to look at it without running one.

``play.py training`` plays the job from its start, ``play.py training --at 74`` shows one moment.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from page.jobs import SCENARIOS
from page.serving import PageServer


def main() -> None:
    parser = argparse.ArgumentParser(description="Shows the page of a made-up job.")
    parser.add_argument("job", choices=sorted(SCENARIOS))
    parser.add_argument("--at", type=float, help="seconds since its start; default: it runs")
    options = parser.parse_args()
    moment = SCENARIOS[options.job]
    begun = time.monotonic()
    with PageServer(*moment(options.at or 0.0)) as server:
        print(server.link(), flush=True)
        while True:
            time.sleep(0.5)
            if options.at is None:
                server.tell(*moment(time.monotonic() - begun))


if __name__ == "__main__":
    main()
