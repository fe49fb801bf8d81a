"""Which names of images pin their content."""

from __future__ import annotations

import pytest

from edl_runtime.image_names import is_digest, is_on_this_machine, pinned_name

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "text",
    ["", DIGEST[:-1], f"{DIGEST}0", DIGEST.upper(), f"{DIGEST}\n", f" {DIGEST}", DIGEST[7:]],
)
def test_what_is_no_digest_pins_nothing(text: str) -> None:
    assert is_digest(DIGEST)
    assert not is_digest(text)
    assert pinned_name(f"host/a@{text}") == ""


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (f"localhost:5000/a/b@{DIGEST}", "localhost:5000/a/b"),
        (f"a:1@{DIGEST}", "a:1"),
        ("a:1", ""),
        (DIGEST, ""),
        (f"@{DIGEST}", ""),
        (f"a b@{DIGEST}", ""),
        (f"a\n@{DIGEST}", ""),
        (f"a@b@{DIGEST}", ""),
        (f"a@{DIGEST}@{DIGEST}", ""),
    ],
)
def test_a_pinned_image_has_a_name_and_a_digest(image: str, name: str) -> None:
    assert pinned_name(image) == name


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("localhost", True), ("localhost:5000", True), ("127.0.0.1:1", True), ("127.9.0.1", True),
        ("[::1]:5000", True), ("10.0.0.1:5000", False), ("localhost.evil.test:1", False),
        ("127.0.0.1.evil.test", False), ("localhost@evil.test:1", False), ("", False),
        ("[::1", False),
    ],
)  # fmt: skip
def test_what_is_on_this_machine(place: str, found: bool) -> None:
    assert is_on_this_machine(place) == found
