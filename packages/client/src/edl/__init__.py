"""The edl command, the Python API and the launcher of local jobs."""

__version__ = "0.1.0"
