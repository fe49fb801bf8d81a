"""The exit codes that a command may need before anything else of edl is loaded."""

UNWRITABLE = 7
DECLINED = 8
INTERRUPTED = 130
