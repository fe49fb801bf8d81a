"""Jobs from the command line are secured: only their user gets at them."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from conftest import Edl, HeldTraining, eventually
from counting import check, records_trained, train

from edl_proto.errors import EdlError, ErrorCode
from edl_proto.identity.names import Role
from edl_proto.transport import channels
from edl_proto.v1 import job_pb2, job_pb2_grpc
from edl_runtime.identity.page_key import metrics_token_file
from edl_testing.fork_server import find_fork
from edl_testing.scrape import scrape

TOTAL, EPOCHS = 6_011, 1
"""Held, this trains for five minutes."""
SERVERS = 2


def listening(pid: int) -> set[int]:
    """Ports of a process, from what Linux says of it."""
    sockets = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            sockets.add(str(one.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [
        line.split()
        for table in ("tcp", "tcp6")  # gRPC listens for both at once
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return {
        int(fields[1].rpartition(":")[2], 16)
        for fields in rows
        if fields[9] in sockets and fields[3] == "0A"
    }


def anonymous() -> ssl.SSLContext:
    """Return the context of a caller without a certificate who trusts every server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def gets_in(port: int, host: str, context: ssl.SSLContext, wait_s: float) -> bool:
    """Tell whether the process that a caller means lets it in, or at least does not refuse it."""
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", port), 200) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=host) as connection:
                connection.settimeout(wait_s)
                return connection.recv(1) != b""  # gRPC speaks first
        except TimeoutError:
            return True  # a direct port waits for a call
        except OSError:
            return False


def check_processes(edl: Edl, secrets: list[bytes]) -> None:
    """No argument and no variable of a process is a secret."""
    for pid in edl.processes():
        for name in ("cmdline", "environ"):
            shown = (Path("/proc") / str(pid) / name).read_bytes()
            assert b"PRIVATE KEY" not in shown
            assert not [secret for secret in secrets if secret.strip() in shown]


def check_metrics_of_workers(edl: Edl) -> None:
    """Check that the metrics are readable only with the job's token."""
    token = metrics_token_file(edl.job_dir("w") / "page").read_text()
    pids = edl.workers("w").values()
    assert pids
    for pid in pids:
        (port,) = listening(find_fork(pid))
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(asked, timeout=200)
        asked.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(asked, timeout=200) as answer:
            assert b"edl_worker_steps_total" in answer.read()


def test_a_job_is_closed_to_all_others(
    edl: Edl,
    tmp_path: Path,
    numbered: Callable[..., Path],
    held: HeldTraining,
) -> None:
    output = tmp_path / "model"
    edl(
        *train(numbered(TOTAL), TOTAL, output, "--num-workers", "2", epochs=EPOCHS, held=held),
        *("--name", "w", "--parameter-servers", str(SERVERS), "--detach"),
    )
    eventually(
        lambda: records_trained(edl, "w") > 0 and len(edl.workers("w")) == 2,
        "both workers work",
    )
    facts = json.loads((edl.job_dir("w") / "master.json").read_bytes())

    # Another user of this machine reaches the ports, and cannot read a file.
    with channels.connect(facts["address"]) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            job_pb2_grpc.JobStub(channel).Stop(job_pb2.StopRequest(reason="me"), timeout=200)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert edl.job_dir("w").stat().st_mode & 0o777 == 0o700
    keys = list((edl.job_dir("w") / "identity").rglob("*.pem"))
    assert len(keys) >= 6
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    sockets = list((edl.job_dir("w") / "identity").glob("*/direct.sock"))
    assert len(sockets) == 1 + SERVERS, "of the master and each server"
    assert {path.stat().st_mode for path in sockets} == {stat.S_IFSOCK | 0o600}

    # Nor does the page show anything but to who has a link, or the metrics but to a scraper.
    url = facts["dashboard_url"]
    for path, code in (("", 403), ("api/status", 403), ("metrics", 401)):
        with pytest.raises(urllib.error.HTTPError) as closed:
            urllib.request.urlopen(f"{url}{path}", timeout=200)
        with closed.value:
            assert closed.value.code == code
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    link = edl("dashboard", "w", "-o", "json").json["dashboard_url"]
    for _ in range(2):  # the second time by its cookie
        with browser.open(link, timeout=200) as answer:
            assert b'id="job-name"' in answer.read()
            home = answer.url
    with browser.open(f"{home}api/status", timeout=200) as answer:
        assert json.loads(answer.read())["name"] == "w"
    assert "edl_job_info" in scrape(edl.job_dir("w"))
    secrets = [path.read_bytes() for path in (edl.job_dir("w") / "page").iterdir()]

    # A worker's certificate does not stop a job.
    worker = edl.credentials("w", Role.WORKER, 1).to(Role.MASTER)
    with channels.connect(facts["address"], worker) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            job_pb2_grpc.JobStub(channel).Stop(job_pb2.StopRequest(reason="me"), timeout=200)
        error = EdlError.from_rpc(caught.value)
        assert error is not None
        assert error.code == ErrorCode.FORBIDDEN

    # Every port of master and servers but that of the page: a certificate opens it, nothing else.
    page = int(facts["dashboard_url"].rstrip("/").rpartition(":")[2])
    owners = {facts["pid"]: "master.edl"}
    for server in edl.written_status("w").get("servers", []):
        owners[find_fork(server["pid"])] = f"server-{server['id']}.edl"
    opened = 0
    for pid, host in owners.items():
        for port in listening(pid) - {page}:
            assert gets_in(port, host, worker.credentials.client_context, 1.0), port
            assert not gets_in(port, host, anonymous(), 200.0), port
            opened += 1
    assert opened == 2 * len(owners)
    check_metrics_of_workers(edl)

    check_processes(edl, secrets)
    held.release()
    assert edl("wait", "w").code == 0
    check(output, TOTAL, EPOCHS)
    eventually(lambda: not any(path.exists() for path in sockets), "no socket is left")
