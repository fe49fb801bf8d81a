"""A model zoo in a git repository, for jobs on local processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Edl

# Last in the path: only modules that no other folder has are imported from there.
sys.path.append(str(ROOT / "packages" / "builder" / "tests"))

from git_server import Remote, serving

TEMPLATE = ROOT / "packages" / "client" / "src" / "edl" / "templates" / "circle.py.txt"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    files = {"circle.py": f"# commit {{number}}\n{TEMPLATE.read_text()}"}
    with serving(tmp_path_factory.mktemp("git"), files=files) as found:
        yield found


@pytest.fixture
def records(edl: Edl, tmp_path: Path, remote: Remote) -> Path:
    edl.env["GIT_SSL_CAINFO"] = str(remote.ca)
    edl.env["GIT_CONFIG_GLOBAL"] = "/dev/null"
    edl("zoo", "init", str(tmp_path / "local"))
    return tmp_path / "local" / "data"


def read_copied_line(output: Path) -> str:
    return (output / "model_zoo" / "circle.py").read_text().splitlines()[0]


def test_a_job_takes_its_zoo_from_a_repository(
    edl: Edl, remote: Remote, records: Path, tmp_path: Path
) -> None:
    """It takes the newest commit of the main branch, or the commit that its address names."""
    train = ("train", "--model-def", "circle", "--data", str(records / "train.recordio"))
    for mark, number in (("#:zoo", 2), (f"#{remote.commits[0]}:zoo", 1)):
        output = tmp_path / f"model-{number}"
        edl(*train, "--model-zoo", remote.url() + mark, "--output", str(output))
        assert read_copied_line(output) == f"# commit {number}"


def test_a_known_commit_is_not_fetched_again(edl: Edl, remote: Remote, records: Path) -> None:
    zoo = f"{remote.url()}#{remote.commits[1]}:zoo"
    check = ("zoo", "check", "--model-def", "circle", "--model-zoo", zoo)
    edl(*check)
    remote.asked.clear()
    edl(*check)
    assert remote.asked == []
    # A branch may have moved.
    edl(*check[:-1], f"{remote.url()}#main:zoo")
    assert remote.asked


def test_the_python_api_takes_the_same_and_a_tag(
    edl: Edl, remote: Remote, records: Path, tmp_path: Path
) -> None:
    program = f"""
import elasticdl
result = elasticdl.train(
    model_zoo="{remote.url()}#v1:zoo", model_def="circle",
    data={str(records / "train.recordio")!r}, output={str(tmp_path / "model")!r},
)
print(result.records_trained)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **edl.env},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.strip() == "2000", done.stderr
    assert read_copied_line(tmp_path / "model") == "# commit 1"


@pytest.mark.parametrize(
    ("zoo", "code", "said"),
    [
        ("{url}#v9:zoo", 4, "v9"),
        ("{url}#v1:nowhere", 4, "no folder nowhere"),
        ("https://127.0.0.1:1/zoo.git", 4, "cannot be fetched"),
        ("https://me:secret@host/zoo.git", 2, "user name or password"),
        ("ssh://host/zoo.git", 2, "only https"),
        ("git@host:me/zoo.git", 2, "only https"),
        ("https://host/zoo.git#--upload-pack=x", 2, "not a branch, tag or commit"),
        ("https://host/zoo.git#main:../x", 2, "not a folder"),
    ],
)
def test_what_cannot_be_fetched_is_reported(
    edl: Edl, remote: Remote, records: Path, tmp_path: Path, zoo: str, code: int, said: str
) -> None:
    done = edl.run(
        *("train", "--model-def", "circle", "--data", str(records / "train.recordio")),
        *("--model-zoo", zoo.replace("{url}", remote.url()), "--output", str(tmp_path / "model")),
    )
    assert done.code == code, str(done)
    assert said in done.err
    assert "what to do" in done.err
    assert not (edl.home / "jobs").exists()
    assert "secret" not in done.err
