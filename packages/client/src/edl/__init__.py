"""The edl command, the Python API and the launcher of local jobs."""

import os

__version__ = "0.1.0"

# gRPC reads this once, when it is first used: its messages about connections that have ended are
# about jobs that are over, and would mix with the output of the program that runs them.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
