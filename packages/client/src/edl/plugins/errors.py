"""Errors that the command shows with what, where and remedy."""

from __future__ import annotations

from edl.api_errors import for_python
from edl.codec import decode_failure, error_of, failure_of
from edl.core.problem import Problem, usage
from edl_proto.errors import EdlError, ErrorCode

__all__ = [
    "EdlError",
    "ErrorCode",
    "Problem",
    "decode_failure",
    "error_of",
    "failure_of",
    "for_python",
    "usage",
]
