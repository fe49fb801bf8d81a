"""The commands that this package adds to ``edl``."""

from __future__ import annotations

from edl.plugins import CommandEntry

SQL = CommandEntry("edl_sql.cli.sql:sql", "Start a job", "train and predict with statements of SQL")
LOAD = CommandEntry(
    "edl_sql.cli.load:load", "Commands", "write predictions into a column of a table"
)
