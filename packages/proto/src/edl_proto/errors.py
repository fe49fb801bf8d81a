"""The exception for failures that users see, and its form as bytes.

``rpc_errors`` has what needs gRPC, so that a program that only shows errors starts without it.
"""

from __future__ import annotations

from collections.abc import Callable

from edl_proto.printable import indent, visible
from edl_proto.v1 import error_pb2
from edl_proto.v1.error_pb2 import ErrorCode as ErrorCode  # for those who raise errors

_METADATA_KEY = "edl-error-bin"


def _utf8(text: str) -> str:
    """A text that a message can carry: a name of a file may have bytes that are no UTF-8."""
    return text.encode(errors="backslashreplace").decode()


class EdlError(Exception):
    """A failure that the user sees: a code, what happened, where, and what to do.

    Args:
        code: one of ``edl.v1.ErrorCode``.
        what: one sentence.
        where: file:line and function, file and record range, URI or port.
        remedy: what the user can do.
        detail: traceback or log tail.
    """

    def __init__(
        self,
        code: ErrorCode.ValueType,
        what: str,
        *,
        where: str = "",
        remedy: str = "",
        detail: str = "",
    ) -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.where = where
        self.remedy = remedy
        self.detail = detail

    @property
    def code_name(self) -> str:
        """The name of the code; ``INTERNAL`` for one that this version does not know."""
        known = self.code if self.code and self.code in ErrorCode.values() else ErrorCode.INTERNAL
        return ErrorCode.Name(known)

    def __str__(self) -> str:
        lines = [f"{self.code_name}: {indent(self.what)}"]
        if self.where:
            lines.append(f"  where: {indent(self.where)}")
        if self.remedy:
            lines.append(f"  what to do: {indent(self.remedy)}")
        # Python itself prints this for a script of the user that does not catch it.
        return visible("\n".join(lines))

    def __reduce__(self) -> tuple[Callable[[bytes], EdlError], tuple[bytes]]:
        return EdlError.from_bytes, (self.to_proto().SerializeToString(),)

    def to_proto(self) -> error_pb2.Error:
        return error_pb2.Error(
            code=self.code,
            what=_utf8(self.what),
            where=_utf8(self.where),
            remedy=_utf8(self.remedy),
            detail=_utf8(self.detail),
        )

    @classmethod
    def from_proto(cls, message: error_pb2.Error) -> EdlError:
        return cls(
            message.code,
            message.what,
            where=message.where,
            remedy=message.remedy,
            detail=message.detail,
        )

    @classmethod
    def from_rpc(cls, error: Exception) -> EdlError | None:
        """Return the error that a failed call carries, or None."""
        metadata = getattr(error, "trailing_metadata", lambda: None)() or ()
        for key, value in metadata:
            if key == _METADATA_KEY:
                return cls.from_bytes(value)
        return None

    @classmethod
    def from_bytes(cls, content: bytes) -> EdlError:
        """The inverse of ``to_proto().SerializeToString()``."""
        return cls.from_proto(error_pb2.Error.FromString(content))


def error_metadata(error: EdlError) -> tuple[tuple[str, bytes], ...]:
    """The trailing metadata of a failed call; ``EdlError.from_rpc`` reads it."""
    return ((_METADATA_KEY, error.to_proto().SerializeToString()),)
