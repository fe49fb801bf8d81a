"""Each error code has an exit code with a meaning, and a title."""

from __future__ import annotations

from edl.core.exit_codes import MEANINGS, PRESENTATIONS, present
from edl.core.exit_numbers import INTERRUPTED, UNREAD
from edl_proto.errors import ErrorCode


def test_every_error_code_has_a_presentation() -> None:
    assert set(PRESENTATIONS) == set(ErrorCode.keys()) - {"ERROR_CODE_UNSPECIFIED"}


def test_every_exit_code_has_a_meaning_and_a_use() -> None:
    used = {presentation.exit_code for presentation in PRESENTATIONS.values()}
    assert used | {0, INTERRUPTED, UNREAD} == set(MEANINGS)


def test_an_unknown_code_is_an_internal_error() -> None:
    assert present("A_CODE_OF_A_LATER_VERSION") == PRESENTATIONS["INTERNAL"]
    assert present("INTERNAL").exit_code == 70


def test_every_error_of_a_model_file_has_one_exit_code_and_the_machine_another() -> None:
    codes = {f"MODEL_{name}" for name in ("IMPORT", "CONTRACT", "NOT_FOUND")}
    codes |= {"USER_CODE", "SHAPE_MISMATCH", "OPTIMIZER_UNSUPPORTED", "NAN_LOSS"}
    assert {present(code).exit_code for code in codes} == {4}
    assert {present(code).exit_code for code in ("SYSTEM", "DISK_FULL")} == {7}
