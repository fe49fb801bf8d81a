"""Fetches a model zoo with git: one commit, over https, from one checked address."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edl_builder.core.archive import ArchiveLimits, too_large
from edl_builder.core.names import BuilderError, Reason
from edl_builder.core.ports import Cancellation, WriteLine
from edl_builder.core.source_policy import AllowedSource, SourcePolicy, choose_address

_LOOK_S = 0.5
_LONGEST_S = 900.0
"""A server that says nothing, or next to nothing, must not hold a build's place for ever."""

_LINES = 20


@dataclass(frozen=True, slots=True)
class GitCredential:
    """A user and password (or token) of the server, for these hosts only."""

    username: str
    password: str
    hosts: tuple[str, ...]


class Git:
    """Fetches commits.

    Args:
        policy: which addresses may be connected to.
        credentials: by name.
        limits: of the size of what is fetched.
        ca_file: certificates to trust besides the machine's own; empty for these alone.
        longest_s: how long one command of git may take.
    """

    def __init__(
        self,
        policy: SourcePolicy,
        credentials: Mapping[str, GitCredential],
        limits: ArchiveLimits,
        ca_file: str = "",
        longest_s: float = _LONGEST_S,
    ) -> None:
        self._policy = policy
        self._credentials = credentials
        self._limits = limits
        self._ca_file = ca_file
        self._longest_s = longest_s

    def fetch(
        self, allowed: AllowedSource, folder: Path, on_line: WriteLine, cancellation: Cancellation
    ) -> Path:
        """Fetch a commit and write it as a tar archive.

        Returns:
            The archive, in ``folder``.

        Raises:
            BuilderError: the address is not allowed, or git failed.
        """
        source, url = allowed.source, allowed.source.url
        address = choose_address(url, _addresses(url.host.strip("[]"), url.port), self._policy)
        environment = self._environment(allowed)
        repository = folder / "git"
        archive = folder / "fetched.tar"
        git = [
            "git",
            f"--git-dir={repository}",
            *("-c", "protocol.allow=never"),
            *("-c", "protocol.https.allow=always"),
            *("-c", "http.followRedirects=false"),
            *("-c", f"http.curloptResolve={url.host}:{url.port}:{address}"),
            *("-c", "core.hooksPath=/dev/null"),
            *("-c", "credential.helper="),
        ]
        most = self._limits.archive_nbytes
        run = _Runner(environment, repository, most, self._longest_s, on_line, cancellation)
        try:
            run([*git, "init", "--quiet", "--bare", "--template=", str(repository)])
            # What the repository says about archives would change what is built.
            (repository / "info").mkdir(exist_ok=True)
            (repository / "info" / "attributes").write_text("* -export-ignore -export-subst\n")
            on_line(f"fetching {source.ref or 'the default branch'} of {url}")
            fetch = ["fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules"]
            run([*git, *fetch, "--end-of-options", str(url), source.ref or "HEAD"])
            commit = run([*git, "rev-parse", "--verify", "FETCH_HEAD^{commit}"]).strip()
            on_line(f"commit {commit}")
            tree = f"{commit}:{source.folder}" if source.folder else commit
            run([*git, "archive", "--format=tar", f"--output={archive}", tree])
        except BaseException:
            archive.unlink(missing_ok=True)
            raise
        finally:
            shutil.rmtree(repository, ignore_errors=True)
        return archive

    def _environment(self, allowed: AllowedSource) -> dict[str, str]:
        # Nothing of this service's own environment or of a user's git settings is used.
        found = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": "/nonexistent",
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
        }
        if self._ca_file:
            found["GIT_SSL_CAINFO"] = self._ca_file
        elif "GIT_SSL_CAINFO" in os.environ:
            found["GIT_SSL_CAINFO"] = os.environ["GIT_SSL_CAINFO"]
        if allowed.credential:
            known = self._credentials.get(allowed.credential)
            url = allowed.source.url
            if known is None or not {url.host, f"{url.host}:{url.port}"} & set(known.hosts):
                raise BuilderError(
                    Reason.FORBIDDEN,
                    f"there is no credential {allowed.credential!r} for {url.host}",
                    where="git credential",
                    remedy="Ask the operator of the builder.",
                )
            pair = base64.b64encode(f"{known.username}:{known.password}".encode()).decode()
            # In the environment: every user of this machine can see arguments.
            found |= {
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "http.extraHeader",
                "GIT_CONFIG_VALUE_0": f"Authorization: Basic {pair}",
            }
        return found


class _Runner:
    """Runs git, ends it when it is to stop or takes too much room or time."""

    def __init__(
        self,
        environment: Mapping[str, str],
        folder: Path,
        most: int,
        longest_s: float,
        on_line: WriteLine,
        cancellation: Cancellation,
    ) -> None:
        self._environment = environment
        self._folder = folder
        self._most = most
        self._longest_s = longest_s
        self._on_line = on_line
        self._stop = cancellation

    def __call__(self, command: Sequence[str]) -> str:
        self._stop.check()
        process = subprocess.Popen(
            command,
            env=dict(self._environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
            errors="replace",
        )
        over = threading.Event()
        too_much, too_long = threading.Event(), threading.Event()
        deadline = time.monotonic() + self._longest_s

        def watch() -> None:
            while not over.wait(_LOOK_S):
                if time.monotonic() > deadline:
                    too_long.set()
                    _end(process)
                    return
                if _nbytes(self._folder) > self._most:
                    too_much.set()
                    _end(process)
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        unregister = self._stop.on_cancel(lambda: _end(process))
        try:
            # The watcher sees to its end.
            output, errors = process.communicate()
        finally:
            unregister()
            over.set()
            watcher.join()
            _end(process)
        self._stop.check()
        if too_long.is_set():
            raise BuilderError(
                Reason.SOURCE,
                f"git was not done within {self._longest_s:.0f} s",
                where=f"git {command[-1][:80]}",
                remedy="Try again; a large repository is better sent as a folder of its own.",
            )
        if too_much.is_set() or _nbytes(self._folder) > self._most:
            raise too_large(self._most, "repository")
        lines = errors.splitlines()[-_LINES:]
        if process.returncode:
            for line in lines:
                self._on_line(line)
            raise BuilderError(
                Reason.SOURCE,
                f"git could not fetch the zoo: {lines[-1] if lines else 'no message'}",
                where=f"git {command[-1][:80]}",
                remedy="Check the URL, the ref, the folder and the credential's name.",
                detail="\n".join(lines),
            )
        return output


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        try:
            # The group is the process's own: git's children go with it.
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _nbytes(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return total


def _addresses(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    # IPv4 first: many machines have IPv6 addresses that lead nowhere.
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    return list(dict.fromkeys(str(each[4][0]) for each in found))
