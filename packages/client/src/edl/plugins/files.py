"""Files that users name as input, such as keys and credentials."""

from __future__ import annotations

from edl.adapters.input_files import MAX_INPUT_BYTES, may_be_read_by_others, open_input, read_input

__all__ = ["MAX_INPUT_BYTES", "may_be_read_by_others", "open_input", "read_input"]
