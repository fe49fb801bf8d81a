"""Code of a model zoo and of an image that does all that it can, in the containers of real jobs.

The user of these tests is root, so the code has root's number in its containers, and no right of
root but that. What it may do is in docs/security.md.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Edl, eventually

from .conftest import of_jobs
from .docker_environment import DockerEnvironment, exec_output
from .test_jobs_in_containers import HELD

PROBE = Path(__file__).with_name("hostile_probe.py")
TOKEN = "c0ffee-not-for-containers"
MARK = "98765"  # seconds that a process sleeps which wants to stay

HOSTILE = """

import json, subprocess, sys
from pathlib import Path
if "--identity" in sys.argv:
    job_dir = Path(sys.argv[sys.argv.index("--identity") + 1]).parents[2]
    given = json.dumps({{**json.loads({given!r}), "job": job_dir.name}})
    said = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("probe.py")), given],
        capture_output=True, text=True,
    )
    print("PROBE", said.stdout, said.stderr[-2000:], flush=True)
"""


@pytest.fixture
def given(job_docker_env: DockerEnvironment, in_containers: Edl, tmp_path: Path) -> dict[str, Any]:
    """Return facts about the machine, so that the hostile code need not search for them."""
    secret = tmp_path / "secret" / "id_rsa"
    secret.parent.mkdir()
    secret.write_text("a key of the user\n")
    (in_containers.home / "jobs" / "other").mkdir(parents=True)
    in_containers.env |= {"AWS_SECRET_ACCESS_KEY": TOKEN, "GITHUB_TOKEN": TOKEN}
    return {
        "secret": str(secret),
        "home": str(in_containers.home / "jobs"),
        "engine": job_docker_env.engine.removeprefix("unix://"),
        "token": TOKEN,
    }


def read_probe(edl: Edl, job: str) -> dict[str, Any]:
    """Return what the model's code found in a worker."""
    log = (edl.job_dir(job) / "logs" / "worker-0.log").read_text()
    line = next(it for it in log.splitlines() if "PROBE {" in it)
    found: dict[str, Any] = json.loads(line.partition("PROBE ")[2].strip())
    return found


def check(said: dict[str, Any]) -> None:
    """Nothing was done that harms anything but the job, and no key is seen that clients use."""
    found = said["found"]
    assert len(found) > 50, found
    assert not {name for name, how in found.items() if how == "DONE"}, found
    assert said["keys"] == ["identity/master/identity.pem", "identity/worker-0/identity.pem"]


def left_on_the_machine() -> list[str]:
    """Processes that outlived their containers."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if MARK in place.read_bytes().decode(errors="replace").split("\0"):
                found.append(place.parent.name)
    return found


def test_hostile_code_of_a_model_in_containers(
    in_containers: Edl, given: dict[str, Any], tmp_path: Path
) -> None:
    edl, zoo, results = in_containers, tmp_path / "zoo", tmp_path / "results"
    edl("zoo", "init", str(zoo))
    (zoo / "probe.py").write_text(PROBE.read_text())
    told = {**given, "output": str(results)}
    results.mkdir()
    model = (zoo / "circle.py").read_text()
    (zoo / "circle.py").write_text(model + HOSTILE.format(given=json.dumps(told)))
    # The data of another folder: what is in the zoo is in the image.
    data = f"{zoo}/data/train.recordio"
    edl(
        *("train", "--model-zoo", str(zoo), "--model-def", "circle", "--data", data),
        *("--name", "hostile", "--output", str(results / "model")),
    )
    said = read_probe(edl, "hostile")
    check(said)
    assert Path(given["secret"]).read_text() == "a key of the user\n"
    (results / "to-secret").unlink()
    predict = ("predict", "--trained-model", str(results / "model"), "--data", data)
    edl(*predict, "--name", "use", "--output", str(tmp_path / "out" / "predictions"))
    check(read_probe(edl, "use"))
    # The engine may tell of the end of a container before its last process is gone.
    eventually(lambda: not left_on_the_machine(), "no process outlives its container")


def test_hostile_code_of_an_image_in_the_directory_of_its_job(
    job_docker_env: DockerEnvironment, in_containers: Edl, given: dict[str, Any], tmp_path: Path
) -> None:
    edl, zoo, held = in_containers, tmp_path / "zoo", tmp_path / "results" / "held"
    edl("zoo", "init", str(zoo))
    held.parent.mkdir()
    held.touch()
    with (zoo / "circle.py").open("a") as model:
        model.write(HELD.format(held=str(held)))
    edl(
        *("train", "--model-zoo", str(zoo), "--model-def", "circle", "--detach"),
        *("--data", f"{zoo}/data/train.recordio", "--num-epochs", "100000", "--name", "boxed"),
        *("--output", str(tmp_path / "results" / "model")),
    )
    place = edl.job_dir("boxed")
    eventually(
        lambda: int(edl.written_status("boxed").get("progress", {}).get("steps", 0)) > 4, "steps"
    )
    (container,) = of_jobs(job_docker_env, edl)
    assert container.attrs["HostConfig"]["PidsLimit"] == 16_384
    told = {**given, "job": "boxed", "output": str(tmp_path / "results")}
    done = container.exec_run(["python3", "-c", PROBE.read_text(), json.dumps(told)], demux=True)
    assert done.exit_code == 0, done
    said = json.loads(done.output[0])
    check(said)
    # Where this machine reads and writes: only the log of the master can be exchanged at all.
    secret = Path(given["secret"])
    trusted = ("logs", "snapshots", "identity", "identity/client", "spec.json", "supervisor.lock")
    script = (
        f"cd {place}; for it in {' '.join(trusted)}; do"
        " mv $it $it.moved; ln -sfn / $it; done; "
        f"rm logs/master.log; ln -s {secret} logs/master.log; ls -l . logs"
    )
    tried = exec_output(container, ["sh", "-c", script])
    assert f"master.log -> {secret}" in tried
    for name in trusted:
        assert f"'{name}.moved': Device or resource busy" in tried, tried
        assert not (place / name).is_symlink(), name
    container.kill()
    # The next one does not start, because its output would go to the user's file.
    eventually(lambda: edl.status("boxed")["state"] == "FAILED", "the end of the job", every=1)
    assert secret.read_text() == "a key of the user\n"
    eventually(lambda: not of_jobs(job_docker_env, edl), "no container is left")
    eventually(lambda: not left_on_the_machine(), "no process outlives its container")
