"""Small files of this machine: what users name as input, such as keys, and the ends of logs."""

from __future__ import annotations

from edl.adapters.input_files import MAX_INPUT_BYTES, may_be_read_by_others, open_input, read_input
from edl.adapters.log_tail import tail

__all__ = ["MAX_INPUT_BYTES", "may_be_read_by_others", "open_input", "read_input", "tail"]
