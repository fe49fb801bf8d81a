"""What code in a job's container leaves in the job's directory leads this machine nowhere.

The container writes into that directory, and processes of the user's machine read and write there,
too: a link, a pipe or a record of a process there is an attempt to make them do what it cannot.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from edl.adapters.local.continuation import LocalContinuation
from edl.adapters.local.job_log_files import master_log_tail
from edl.adapters.local.job_store import JobStore
from edl.adapters.local.supervisor import GAVE_UP, Supervisor
from edl.adapters.log_tail import Tail
from edl_docker import container_engine, job_container
from edl_docker.backend import ContainerRuntime
from edl_docker.store_credentials import StoreAccess
from edl_proto.errors import EdlError
from edl_proto.v1 import job_pb2
from edl_runtime.identity.page_key import PageKey
from edl_runtime.local import job_directory, process_identity, supervision
from edl_runtime.local.job_status import read_status
from edl_testing.recording_engine import RecordingEngine

DEEP = "[" * 200_000


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    """The directory of a job in a container."""
    path = tmp_path / "home" / "jobs" / "boxed"
    (path / "logs").mkdir(parents=True)
    (path / "instances").mkdir()
    spec = {"name": "boxed", "platform": "docker", "containers": {"engine": "unix:///nowhere"}}
    (path / "spec.json").write_text(json.dumps(spec))
    record = {"engine": "unix:///nowhere", "name": "edl-boxed-1", "pid": 1, "start_time": 1}
    (path / "container.json").write_text(json.dumps(record))
    return path


@pytest.fixture
def bystander(job_dir: Path) -> Any:
    """A process of the user, which a record in the job's directory calls a worker."""
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    facts = {"pid": child.pid, "start_time": process_identity.start_time(child.pid)}
    (job_dir / "instances" / "worker-0-0.json").write_text(json.dumps(facts))
    yield child
    child.kill()
    child.wait()


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_a_log_that_is_none_is_not_written_to(job_dir: Path, tmp_path: Path, kind: str) -> None:
    log, own = job_dir / "logs" / "master.log", tmp_path / "authorized_keys"
    if kind == "pipe":
        os.mkfifo(log)
    else:
        log.symlink_to(own)
    if kind == "link":
        own.write_text("mine\n")
    supervision.describe(job_dir, ["true"], ["sh", "-c", "echo theirs"])
    assert Supervisor(job_dir, ["sh", "-c", "echo theirs"]).run() == GAVE_UP
    assert "cannot be started" in supervision.read_report(job_dir)["error"]["what"]
    if kind == "link":
        assert own.read_text() == "mine\n"
    assert own.exists() == (kind == "link")


def test_a_log_that_is_a_link_is_not_shown(job_dir: Path, tmp_path: Path) -> None:
    """The end of a log goes into reports, which code in a container may read, and to trackers."""
    (tmp_path / "id_rsa").write_text("a key\n")
    (job_dir / "logs" / "master.log").symlink_to(tmp_path / "id_rsa")
    assert master_log_tail(job_dir) == ""
    assert list(Tail(job_dir / "logs" / "master.log", None).read(final=True)) == []


def test_a_lock_that_is_a_link_makes_no_file(job_dir: Path, tmp_path: Path) -> None:
    (job_dir / job_directory.RESUME_LOCK).symlink_to(tmp_path / "made")
    store = JobStore(job_dir.parent, ContainerRuntime())

    class Backend:
        def status(self, name: str, *, ask: bool = True) -> None:
            """It is one of this backend."""

    found: Any = Backend()
    with pytest.raises(EdlError, match="cannot be written"):
        LocalContinuation(found, store, ContainerRuntime()).resume("boxed")
    assert not (tmp_path / "made").exists()


def test_a_folder_of_the_page_s_key_that_is_a_link_is_replaced(
    job_dir: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "key").write_text("of something else")
    (job_dir / job_directory.PAGE).symlink_to(other)
    PageKey.provide(job_dir / job_directory.PAGE)
    assert (other / "key").read_text() == "of something else"
    assert stat.S_ISDIR((job_dir / job_directory.PAGE).lstat().st_mode)


def test_a_record_of_a_process_ends_none(
    job_dir: Path,
    bystander: subprocess.Popen[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither when the supervisor gives the master up, nor when a client ends the job."""
    monkeypatch.setattr(container_engine, "client", lambda *_: RecordingEngine())
    assert ContainerRuntime().workers(job_dir) == []
    said = tmp_path / "said"
    script = job_dir / "master.sh"
    script.write_text(f'case "$*" in *--remove*) echo "$*" >>{said};; *) exit 3;; esac\n')
    supervision.describe(job_dir, ["true"], ["sh", str(script)])
    (job_dir / "container.lock").touch()
    assert Supervisor(job_dir, ["sh", str(script)]).run() == GAVE_UP
    assert said.read_text() == f"--job-dir {job_dir} --remove\n", "its containers are removed"
    assert bystander.poll() is None


def test_the_containers_of_a_job_can_be_removed(
    job_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[Path] = []
    monkeypatch.setattr(container_engine, "sweep", swept.append)
    assert job_container.main(["--job-dir", str(job_dir), "--remove"]) == 0
    assert swept == [job_dir]


def test_a_master_that_stays_after_the_end_is_killed(
    job_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it keeps its page is the job's choice, and not its own."""
    killed = threading.Event()
    monkeypatch.setattr(job_container, "_CHECK_EVERY_S", 0.02)
    monkeypatch.setattr(container_engine.Container, "send", lambda *_: killed.set())
    container = container_engine.Container("unix:///nowhere", "edl-boxed-1")
    job_container._watch_end(job_dir, container, 0.5)
    assert not killed.wait(0.8), "the job goes on"
    began = time.monotonic()
    (job_dir / "status.json").write_text('{"state": "SUCCEEDED"}')
    assert killed.wait(100)
    assert time.monotonic() - began >= 0.5


def start(job_dir: Path, image: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options of the container of a job of this image; its mounts by their places."""
    monkeypatch.setenv("EDL_HOME", str(job_dir.parents[1]))
    engine = RecordingEngine()
    monkeypatch.setattr(container_engine, "client", lambda *_: engine)
    spec = job_pb2.JobSpec(name="boxed", image=image)
    container = container_engine.Container("unix:///nowhere", "edl-boxed-1")
    job_container._start(container, spec, job_dir, StoreAccess())
    options = engine.created[0]["host_config"]
    return {**options, "mounts": {each["Target"]: each for each in options["mounts"]}}


def test_what_others_follow_is_a_mount_which_no_container_can_exchange(
    job_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = start(job_dir, "zoo@sha256:1", monkeypatch)
    for name in ("logs", "snapshots"):
        assert not found["mounts"][str(job_dir / name)]["ReadOnly"]
    assert found["pids_limit"] > 0


def test_no_image_gets_what_another_has_compiled(
    job_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled code is loaded as it lies there, by the next master that sees the folder."""
    places = []
    for image in ("zoo@sha256:1", "zoo@sha256:2", "zoo@sha256:1"):
        mounts = start(job_dir, image, monkeypatch)["mounts"]
        places.append({path for path in mounts if path.startswith(f"{tmp_path}/home/kernels")})
    assert [len(each) for each in places] == [1, 1, 1]
    assert places[0] == places[2]
    assert not places[0] & places[1]
    assert f"{tmp_path}/home/kernels" not in places[0] | places[1]


def test_compiled_code_of_images_out_of_use_is_removed(
    job_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for image in ("old", "new"):
        start(job_dir, image, monkeypatch)
    kernels = tmp_path / "home" / "kernels"
    long_ago = time.time() - 40 * 24 * 3600
    for place in kernels.iterdir():
        os.utime(place, (long_ago, long_ago))
    start(job_dir, "new", monkeypatch)
    assert len(list(kernels.iterdir())) == 1


@pytest.mark.parametrize("name", ["status.json", "master.json", "supervision.json", "end.json"])
@pytest.mark.parametrize(
    "content",
    [
        DEEP,
        '"\\ud800"',
        '{"state": [], "end": {}, "error": 5, "pid": 1e999, "address": 1, "start_time": 1}',
    ],
    ids=["deep", "surrogate", "kinds"],
)
def test_a_file_that_no_parser_can_read_spoils_no_list(
    job_dir: Path, name: str, content: str, forking_edl: str
) -> None:
    (job_dir / name).write_text(content)
    program = [forking_edl, "-m", "edl"]
    env = {**os.environ, "EDL_HOME": str(job_dir.parents[1]), "EDL_PLATFORM": "docker"}
    for words in (["list"], ["status", "boxed"], ["events", "boxed"]):
        done = subprocess.run(
            [*program, *words], env=env, capture_output=True, text=True, timeout=200, check=False
        )
        assert "INTERNAL" not in done.stderr, (words, done.stderr)
        assert "Traceback" not in done.stderr, (words, done.stderr)
        assert words == ["events", "boxed"] or "boxed" in done.stdout + done.stderr


@pytest.mark.parametrize("value", ["[]", "{}", "5", "1e999", "null"])
def test_values_of_any_kind_are_no_state(job_dir: Path, value: str) -> None:
    """The supervisor of the job reads them, too, and goes on."""
    (job_dir / "status.json").write_text(f'{{"state": {value}}}')
    assert supervision.final_state(job_dir) == ""
    (job_dir / "supervision.json").write_text(f'{{"end": {value}}}')
    assert not supervision.is_over(job_dir)
    read_status(job_dir)
    (job_dir / "status.json").unlink()
    (job_dir / "supervision.json").write_text(f'{{"end": {value}, "error": {value}}}')
    assert read_status(job_dir).state == job_pb2.FAILED
    (job_dir / "container.json").write_text(f'{{"pid": {value}, "start_time": {value}}}')
    assert supervision.master_process(job_dir) in (None, (5, 5))
