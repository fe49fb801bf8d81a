"""Whether a file or folder of edl's state is its user's alone to change.

What lies there names programs to run: a job's directory has the command of its supervisor, and a
model zoo from git is code. Whoever else could put a folder there could run code as this user, who
only asks for a list of jobs.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def is_own_file(facts: os.stat_result) -> bool:
    """Whether a file or folder is this user's, and not everybody may change it.

    What a group may write is left to its user: mostly it is a group of his own.
    """
    return facts.st_uid == os.geteuid() and not facts.st_mode & stat.S_IWOTH


def is_own(folder: Path) -> bool:
    """Whether no other user but root can have changed a folder, or put it into its place.

    One that is not there is nobody's.
    """
    try:
        here, above = folder.lstat(), folder.parent.stat()
    except OSError:
        return False
    if not stat.S_ISDIR(here.st_mode) or not is_own_file(here):
        return False
    others = above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX
    return above.st_uid in (os.geteuid(), 0) and not others
