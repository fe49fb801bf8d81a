"""All errors of a model file at once."""

from __future__ import annotations

from collections.abc import Sequence

from edl_proto.errors import EdlError


class ContractErrors(EdlError):
    """What is wrong with a model file, everything that was found.

    It is itself an ``EdlError`` (code, where and remedy of the first error; the detail tells
    all of them), so that it can be reported where one error is expected.

    Attributes:
        errors: at least one, in the order in which a person should mend them.
    """

    def __init__(self, errors: Sequence[EdlError]) -> None:
        first = errors[0]
        what = first.what
        if len(errors) > 1:
            what = f"{what} (and {len(errors) - 1} more)"
        detail = "\n".join(str(error) for error in errors) if len(errors) > 1 else first.detail
        super().__init__(first.code, what, where=first.where, remedy=first.remedy, detail=detail)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)
