"""What errors of a disk are for a person."""

from __future__ import annotations

import errno

from edl_master.adapters.storage_errors import storage_error
from edl_proto.errors import ErrorCode


def test_a_full_disk_differs_from_one_that_may_not_be_written() -> None:
    full = storage_error(OSError(errno.ENOSPC, "No space left on device"), "/a/b")
    assert full.code == ErrorCode.DISK_FULL
    assert "/a/b" in full.what
    denied = storage_error(PermissionError(errno.EACCES, "Permission denied"), "/a/b")
    assert denied.code == ErrorCode.OUTPUT_UNWRITABLE
    assert "Permission denied" in denied.what
