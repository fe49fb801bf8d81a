"""What a failed build says first, and what is shown of an engine's words."""

from __future__ import annotations

import pytest

from edl_builder.adapters.docker_engine import lines_of, pip_failure


@pytest.mark.parametrize(
    ("lines", "failure"),
    [
        (
            [
                "Step 4/6 : RUN pip install -r requirements.txt",
                "\x1b[31mERROR: Ignored the following versions that want another python: 1\x1b[0m",
                "\x1b[31mERROR: Could not find a version of nothing==9 (from versions: 1)",
                "ERROR: No matching distribution found for nothing==9",
                "[notice] A new release of pip is available",
            ],
            "No matching distribution found for nothing==9",
        ),
        (
            [
                "ERROR: Cannot install a==1 and b==2 because these versions conflict.",
                "The conflict is caused by:",
                "ERROR: ResolutionImpossible: for help visit https://pip.pypa.io",
            ],
            "Cannot install a==1 and b==2 because these versions conflict.",
        ),
        (
            ["  error: subprocess-exited-with-error", "error: metadata-generation-failed"],
            "metadata-generation-failed",
        ),
        (["Step 1/2 : FROM x", "COPY failed"], ""),
    ],
)  # fmt: skip
def test_the_line_of_pip_that_tells_why(lines: list[str], failure: str) -> None:
    assert pip_failure(lines) == failure


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one\r\n\x1b[2K\rtwo\n", ["one", "two"]),
        ("\x1b]0;title\x07one\x1b[31m red\x08\ttab", ["one red\ttab"]),
        ("one\x1b]0;title\nERROR: two\n\x07three", ["one", "ERROR: two", "three"]),
        ("\x1b]8;;https://x\x1b\\link\x1b]8;;\x1b\\", ["link"]),
        ("one\x1b", ["one"]),
    ],
)
def test_a_terminal_would_obey_nothing_in_the_lines_of_an_engine(
    text: str, lines: list[str]
) -> None:
    assert lines_of(text) == lines
