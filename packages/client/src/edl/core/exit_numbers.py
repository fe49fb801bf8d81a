"""The exit codes that a command may need before anything else of edl is loaded."""

UNWRITABLE = 7
DECLINED = 8
INTERRUPTED = 130
UNREAD = 141
"""As of a process that SIGPIPE has ended: the reader of its output has gone."""
