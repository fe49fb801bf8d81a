"""Checks that only its user can change a file or folder of edl's state.

The state names programs to run: a job's directory has the command of its supervisor, and a model
zoo from git is code. Another user who could put a folder there could run code as this user, who
only asked for a list of jobs.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def is_own_file(facts: os.stat_result) -> bool:
    """Tell whether a file or folder belongs to this user, and not every user may change it.

    A group may: in most cases it is the user's own.
    """
    return facts.st_uid == os.geteuid() and not facts.st_mode & stat.S_IWOTH


def is_own(folder: Path) -> bool:
    """Tell whether only this user and root can have changed or placed a folder.

    A folder that does not exist belongs to no one.
    """
    try:
        here, above = folder.lstat(), folder.parent.stat()
    except OSError:
        return False
    if not stat.S_ISDIR(here.st_mode) or not is_own_file(here):
        return False
    others = above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX
    return above.st_uid in (os.geteuid(), 0) and not others
