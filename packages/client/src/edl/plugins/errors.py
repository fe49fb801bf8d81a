"""Errors that the command shows with what, where and remedy."""

from __future__ import annotations

from edl.codec import decode_failure, error_of, failure_of
from edl.core.problem import Problem, usage
from edl_proto.errors import EdlError, ErrorCode

__all__ = ["EdlError", "ErrorCode", "Problem", "decode_failure", "error_of", "failure_of", "usage"]
