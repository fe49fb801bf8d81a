"""gRPC's own messages about connections that end do not reach users of the Python API."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# gRPC reads the variable when it is loaded.
PROGRAM = """
import os, sys
import elasticdl
assert "grpc" not in sys.modules
elasticdl.train
print(os.environ["GRPC_VERBOSITY"])
"""


@pytest.mark.parametrize(("own", "seen"), [({}, "ERROR"), ({"GRPC_VERBOSITY": "INFO"}, "INFO")])
def test_the_python_api_asks_for_errors_only(own: dict[str, str], seen: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environment, **own},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == seen
