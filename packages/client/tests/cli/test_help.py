"""Help: examples first, every option, and nothing heavy imported for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edl.cli.root import COMMANDS
from edl.core.exit_codes import MEANINGS
from edl.core.options import Verb, options_of

HEAVY = (
    "grpc",
    "asyncio",
    "rich",
    "numpy",
    "yaml",
    "recordio",
    "pyarrow",
    "tensorflow",
    "keras",
    "kubernetes",
)
"""What no command needs for its help."""

HEAVY_FOR_A_LIST = (*HEAVY, "google.protobuf", "edl_proto", "concurrent.futures")
"""What the list of commands does not need either."""


@pytest.fixture
def output(forking_edl: str) -> Callable[..., str]:
    """Runs the command, and returns what it prints."""

    def run(*args: str, **more: str) -> str:
        usual = {name: value for name, value in os.environ.items() if not name.startswith("EDL_")}
        command = [forking_edl, "-m", "edl", *args]
        done = subprocess.run(
            command, capture_output=True, text=True, env={**usual, **more}, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def leaves() -> list[tuple[str, ...]]:
    groups = {"zoo": ("init", "check", "build")}
    return [
        path
        for name, entry in COMMANDS.items()
        if entry.target.startswith("edl.") and name != "data"
        for path in ((name,), *((name, sub) for sub in groups.get(name, ())))
    ]


@pytest.mark.parametrize("path", [(), *leaves()], ids=" ".join)
def test_help_begins_with_examples_of_this_very_command(
    output: Callable[..., str], path: tuple[str, ...]
) -> None:
    lines = output(*path, "--help").splitlines()
    assert lines[0] == "Examples:"
    assert lines[1].startswith("  " + " ".join(("edl", *path)))
    assert any(line.startswith("Usage: edl") for line in lines)


@pytest.mark.parametrize("verb", list(Verb))
def test_help_has_every_option(output: Callable[..., str], verb: Verb) -> None:
    text = output(verb, "--help")
    for option in options_of(verb):
        assert f"{option.flag} " in text, option
    assert "  -n, --namespace NAME " in text, "as kubectl and edl list take it"


@pytest.mark.parametrize(
    ("heavy", "args"),
    [
        (HEAVY_FOR_A_LIST, ("--help",)),
        (HEAVY_FOR_A_LIST, ("--version",)),
        (HEAVY_FOR_A_LIST, ("zoo", "--help")),
        (HEAVY, ("train", "--help")),
        (HEAVY, ("list", "--help")),
    ],
)
def test_help_imports_nothing_heavy(heavy: tuple[str, ...], args: tuple[str, ...]) -> None:
    program = (
        "import sys\n"
        "from edl.__main__ import run\n"
        "code = run(sys.argv[1:])\n"
        "print(code, *sorted(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *args], capture_output=True, text=True, check=True
    )
    code, *modules = done.stderr.split()
    assert code == "0"
    assert not [name for name in modules for each in heavy if f"{name}.".startswith(f"{each}.")]


def test_a_command_that_submits_nothing_does_not_import_what_reads_data() -> None:
    program = "import sys; from edl.__main__ import run; run(sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program, "list", "-o", "name"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "edl.use_cases.job_catalog" in done.stdout.split()
    assert not {"numpy", "recordio"} & set(done.stdout.split())


def test_the_help_has_every_exit_code(output: Callable[..., str]) -> None:
    text = output("--help")
    for code, meaning in MEANINGS.items():
        assert f"{code:>5}  {meaning}" in text


def test_the_documentation_has_every_command_and_exit_code() -> None:
    docs = Path(__file__).resolve().parents[4] / "docs" / "command-line.md"
    if not docs.exists():
        pytest.skip("the package is tested outside of its repository")
    text = docs.read_text()
    for name in COMMANDS:
        assert f"edl {name}" in text, name
    for code in MEANINGS:
        assert f"| {code} |" in text, code


def test_no_command_at_all_shows_the_help() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edl"], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("Examples:")


@pytest.fixture
def complete(output: Callable[..., str]) -> Callable[..., list[str]]:
    """Returns the words with which bash completes a line."""

    def ask(line: str, **more: str) -> list[str]:
        asked = {"_EDL_COMPLETE": "bash_complete", "COMP_WORDS": line}
        return output(**asked, COMP_CWORD=str(len(line.split(" ")) - 1), **more).split()

    return ask


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("edl st", ["status", "stop"]),
        ("edl status ", ["second", "first"]),
        ("edl wait first s", ["second"]),
        ("edl train --upd", ["--update"]),
        ("edl train --update ", ["sync", "async", "bounded"]),
        ("edl train --strategy a", ["auto", "allreduce"]),
        ("edl predict --format p", ["parquet"]),
        ("edl data convert --format i", ["images", "idx"]),
        ("edl list -o j", ["json"]),
        ("edl scale f", ["first"]),
    ],
)
def test_completion(
    complete: Callable[..., list[str]], line: str, words: list[str], tmp_path: Path
) -> None:
    for age, name in enumerate(("second", "first")):
        job = tmp_path / "jobs" / name
        job.mkdir(parents=True)
        (job / "spec.json").write_text("{}")
        os.utime(job / "spec.json", (1000 - age, 1000 - age))
        os.utime(job, (1000 - age, 1000 - age))
    assert complete(line, EDL_HOME=str(tmp_path)) == [f"plain,{word}" for word in words]


@pytest.mark.parametrize("line", ["edl train --data tr", "edl data inspect tr", "edl zoo init "])
def test_the_shell_completes_names_of_files(complete: Callable[..., list[str]], line: str) -> None:
    assert complete(line) == [f"file,{line.split(' ')[-1]}"]
