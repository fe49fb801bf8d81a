"""Malformed and malicious files, read by ``edl data convert`` and ``inspect``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import recordio
import recordio.example
from edl.__main__ import run
from edl_testing.command import Done, assert_refused

Attempt = Callable[..., Done]


@pytest.fixture
def attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Attempt:
    """The command, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> Done:
        capsys.readouterr()
        return Done(args, run(args), *capsys.readouterr())

    return call


def write(file: Path, *records: dict[str, Any]) -> str:
    with recordio.Writer(str(file)) as writer:
        for record in records:
            writer.write(recordio.example.encode(record))
    return str(file)


def test_all_texts_of_a_list_and_all_digits_of_an_identifier_are_shown(
    attempt: Attempt, tmp_path: Path
) -> None:
    record = {"tags": ["a", b"\xff\0", "c"], "id": [9007199254740993], "none": [b""]}
    out = attempt("data", "inspect", write(tmp_path / "t.recordio", record)).out
    assert "    id    int64        9007199254740993\n" in out
    assert "    tags  bytes[3]     a, ff 00, c\n" in out
    assert "    none  bytes\n" in out


def test_names_and_values_stay_on_their_lines(attempt: Attempt, tmp_path: Path) -> None:
    file = write(tmp_path / "t.recordio", {"a\nb": [1], "long": ["y" * 5000]})
    assert attempt("data", "inspect", file).out.splitlines()[3:] == [
        "    a\\nb  int64        1",
        f"    long  bytes        {'y' * 200}...",
    ]
    out = attempt("data", "convert", file, "--to", "out").out
    assert "  a\\nb  int64  1\n" in out


def test_lists_of_several_lengths_have_their_bounds(attempt: Attempt, tmp_path: Path) -> None:
    file = write(tmp_path / "t.recordio", {"tags": ["a", "b"], "x": [1]}, {"tags": ["c"], "x": [2]})
    out = attempt("data", "convert", file, "--to", "out").out
    assert "  tags  bytes  2; 1 to 2 values in others\n" in out
    assert "  x     int64  1\n" in out


@pytest.mark.parametrize("header", [",a", "a,", "a, "])
def test_a_column_without_a_name_does_not_become_the_label(
    attempt: Attempt, tmp_path: Path, header: str
) -> None:
    (tmp_path / "t.csv").write_text(f"{header}\n1,2\n")
    done = attempt("data", "convert", "t.csv", "--to", "out")
    assert_refused(done, 3, "a column of the header has no name", "--columns")
    done = attempt("data", "convert", "t.csv", "--to", "out", "--columns", "a")
    assert "  a  int64  1\n" in done.out


def test_a_file_of_records_that_was_cut_off(attempt: Attempt, tmp_path: Path) -> None:
    file = Path(write(tmp_path / "t.recordio", {"x": [1]}))
    file.write_bytes(file.read_bytes()[:-3])
    assert_refused(
        attempt("data", "convert", str(file), "--to", "out"), 3, "the file is damaged", "chunk 0"
    )


def test_json_that_is_empty_deep_or_no_text(attempt: Attempt, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text("{}\n")
    assert "first record: object" in attempt("data", "inspect", str(file)).out
    file.write_text("[" * 100_000 + "\n")
    assert_refused(attempt("data", "inspect", str(file)), 3, "nested too deeply", "t.jsonl:1")
    file.write_bytes(b"\xff\n")
    assert_refused(attempt("data", "inspect", str(file)), 3, "is not JSON", "t.jsonl:1")


def test_a_huge_record_is_shown_and_not_decoded(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edl_convert.inspection._MAX_DECODED_BYTES", 1000)
    with recordio.Writer(str(tmp_path / "huge.recordio")) as writer:
        writer.write(recordio.example.encode({"x": list(range(1000))}))
    done = attempt("data", "inspect", "huge.recordio", "-o", "json")
    assert done.json[0]["first_record_is"].endswith("too large to be decoded here")
    assert len(done.json[0]["first_record"]) < 200


def test_a_name_that_is_no_utf8_is_shown(attempt: Attempt, tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.recordio")
    with recordio.Writer(str(tmp_path / name)) as writer:
        writer.write(b"1")
    done = attempt("data", "inspect", name, "-o", "json", "--format", "recordio")
    assert done.json[0]["file"] == name


@pytest.mark.timeout(60)  # it would wait for ever
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "recordio", "tfrecord"])
def test_a_pipe_with_the_name_of_a_table(attempt: Attempt, tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"t.{suffix}")
    for command in (("inspect",), ("convert", "--to", "out")):
        assert_refused(attempt("data", *command, f"t.{suffix}"), 3, "regular file")


@pytest.mark.timeout(60)  # it would wait for ever
def test_a_file_of_the_kernel_that_never_ends(attempt: Attempt, tmp_path: Path) -> None:
    """It says that it is a regular file, and empty."""
    (tmp_path / "t.csv").symlink_to("/proc/kmsg")
    for command in (("inspect",), ("convert", "--to", "out")):
        for place in ("/proc/kmsg", "t.csv"):
            done = attempt("data", *command, place)
            assert done.code == 3, done
            # Only root may open it, and not in every container.
            assert any(words in done.err for words in ("regular file", "denied", "permitted"))


def test_a_working_directory_that_is_gone(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "removed"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = attempt("data", "convert", "a", "--to", "b")
    assert done.code in (3, 7), done


def test_a_mistyped_command(attempt: Attempt) -> None:
    assert_refused(attempt("data", "covnert"), 2, "Did you mean convert?")


@pytest.mark.parametrize("words", [(), ("convert",), ("inspect",)])
def test_help_begins_with_examples(attempt: Attempt, words: tuple[str, ...]) -> None:
    lines = attempt("data", *words, "--help").out.splitlines()
    assert lines[0] == "Examples:"
    assert lines[1].startswith("  " + " ".join(("edl", "data", *words)))
