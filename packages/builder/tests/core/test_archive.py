"""Which entries of an archive are accepted."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edl_builder.core.archive import ArchiveLimits, Entry, EntryKind, EntryValidator
from edl_builder.core.failure import BuilderError, Reason

LIMITS = ArchiveLimits(1000, 1000, 50)


def accept(*entries: Entry) -> list[str]:
    found = EntryValidator(LIMITS)
    return [found.accept(entry) for entry in entries]


def file(path: str, nbytes: int = 1) -> Entry:
    return Entry(path, EntryKind.FILE, nbytes)


def link(path: str, target: str) -> Entry:
    return Entry(path, EntryKind.SYMLINK, 0, target)


def test_plain_paths_are_taken_as_they_are() -> None:
    entries = [
        Entry("./", EntryKind.FOLDER),
        file("./a.py"),
        Entry("b/", EntryKind.FOLDER),
        file("b//c.py"),
        file("d/e/f.py"),
        link("d/l", "../b/c.py"),
    ]
    assert accept(*entries) == ["", "a.py", "b", "b/c.py", "d/e/f.py", "d/l"]


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "../x", "a/../../x", "a/..", "..", "C:\\x", "a\\..\\x", "a\0b", "a\nb"),
        *("x" * 300, "d/" * 70 + "x", "y" * 2000, "\udcff", "a/\u202ex"),
    ],
)
def test_paths_that_lead_elsewhere_are_refused(path: str) -> None:
    with pytest.raises(BuilderError) as refused:
        accept(file(path))
    assert refused.value.failure.reason is Reason.UNSAFE


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("l", "/etc/passwd"),
        ("l", ".."),
        ("l", "../x"),
        ("a/l", "../../x"),
        ("a/l", "b/../../../x"),
        # `d` may itself be a link, and `d/..` then lies elsewhere.
        ("l", "d/.."),
        ("l", ""),
        ("l", "a\0"),
        ("l", "..\\x"),
    ],
)
def test_links_out_of_the_tree_are_refused(path: str, target: str) -> None:
    with pytest.raises(BuilderError) as refused:
        accept(link(path, target))
    assert refused.value.failure.reason is Reason.UNSAFE


@pytest.mark.parametrize("kind", [EntryKind.HARDLINK, EntryKind.OTHER])
def test_special_files_are_refused(kind: EntryKind) -> None:
    with pytest.raises(BuilderError, match=str(kind)):
        accept(Entry("x", kind, 0, "a"))


@pytest.mark.parametrize(
    "entries",
    [
        (link("a", "b"), file("a/x")),
        (file("a"), file("a/x")),
        (file("a/x"), link("a", "b")),
        (file("a"), file("./a")),
        (file("a"), Entry("a", EntryKind.FOLDER)),
        (file("."),),
    ],
)
def test_nothing_lies_below_a_link_or_comes_twice(entries: tuple[Entry, ...]) -> None:
    with pytest.raises(BuilderError):
        accept(*entries)


def test_limits_hold() -> None:
    accept(*[file(f"f{n}", 20) for n in range(50)])
    for too_much in ([file(f"f{n}", 0) for n in range(51)], [file("a", 600), file("b", 401)]):
        with pytest.raises(BuilderError) as refused:
            accept(*too_much)
        assert refused.value.failure.reason is Reason.LIMIT
    with pytest.raises(BuilderError):
        accept(file("a", -1))


def test_folders_that_no_entry_names_count() -> None:
    accept(*[file("/".join("abcdefghi") + f"/{n}") for n in range(41)])
    with pytest.raises(BuilderError) as refused:
        accept(*[file(f"{n}/" + "/".join("abcdefgh") + "/x") for n in range(6)])
    assert refused.value.failure.reason is Reason.LIMIT


_part = st.sampled_from(["a", "b", "c", "..", ".", ""])
_paths = st.lists(_part, min_size=1, max_size=5).map("/".join)
_entries = st.lists(
    st.one_of(
        st.builds(file, _paths),
        st.builds(lambda p: Entry(p, EntryKind.FOLDER), _paths),
        st.builds(link, _paths, _paths),
    ),
    max_size=12,
)


@given(_entries)
@example([link("a", "a//a")])
def test_what_is_accepted_stays_in_the_tree_on_a_real_disk(entries: list[Entry]) -> None:
    """Fuzz: the file system itself says where each accepted entry and link leads."""
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary).resolve() / "outer" / "zoo"
        root.mkdir(parents=True)
        validator = EntryValidator(LIMITS)
        for entry in entries:
            try:
                path = validator.accept(entry)
            except BuilderError:
                continue
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            match entry.kind:
                case EntryKind.FOLDER:
                    place.mkdir(exist_ok=True)
                case EntryKind.SYMLINK:
                    place.symlink_to(entry.target)
                case _:
                    place.write_text("x")
        for place in root.rglob("*"):
            try:
                os.stat(place)
            except OSError as error:
                if error.errno == errno.ELOOP:
                    continue  # leads nowhere; realpath() makes up a path for some such loops
            real = os.path.realpath(place, strict=False)
            assert real == str(root) or real.startswith(f"{root}/"), (place, real)
