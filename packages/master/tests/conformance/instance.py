"""An instance for conformance tests: a tiny process that behaves as its argument says.

Usage: ``python instance.py BEHAVIOUR``; see ``platform_suite.Behaviour``. It prints ``up`` once it
behaves so.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time


def main(behaviour: str) -> int:
    if behaviour == "crashing":
        for number in range(100):
            print(f"line {number}", flush=True)
        return 3
    if behaviour == "finishing":
        print("done", flush=True)
        return 0
    if behaviour == "obedient":
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    elif behaviour == "frank":
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    elif behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif behaviour == "parent":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(f"child {child.pid}", flush=True)
    elif behaviour == "littering":
        print(f"litter {tempfile.mkdtemp()}", flush=True)
    print("up", flush=True)
    time.sleep(600)  # longer than any test; a test that loses its instance leaves it no longer
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
