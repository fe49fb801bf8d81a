"""Fetches a model zoo with git: one commit, over https, from one checked address."""

from __future__ import annotations

import base64
import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from edl_builder.adapters.git_runner import GitRunner
from edl_builder.core.archive import ArchiveLimits, too_large, too_many
from edl_builder.core.failure import BuilderError, Reason
from edl_builder.core.ports import Cancellation, WriteLine
from edl_builder.core.source_policy import AllowedSource, SourcePolicy, choose_address

_TIMEOUT_S = 900.0
"""A server that sends little or nothing must not occupy a build's place forever."""

_CHUNK = 1 << 18
_MAX_ENTRY_BYTES = 1 << 16
"""Limit on an entry in the listing of a tree: a path below many folders."""

_MAX_OVERHEAD_BYTES = 2048
"""Bytes of tar around one entry: its header, a header for its name, padding."""


@dataclass(frozen=True, slots=True)
class GitCredential:
    """The user and password (or token) for some hosts only."""

    username: str
    password: str
    hosts: tuple[str, ...]


COMMIT = "commit"
"""The file in a build's folder with the commit that was fetched."""


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
        longest_s: float = _TIMEOUT_S,
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
            *("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60"),
            *("-c", "core.hooksPath=/dev/null"),
            *("-c", "credential.helper="),
            # What is fetched stays in one file, whose size has a limit; large files go through
            # memory in pieces.
            *("-c", "fetch.unpackLimit=1", "-c", "core.bigFileThreshold=1m"),
            *("-c", "core.packedGitWindowSize=32m", "-c", "pack.threads=1"),
        ]
        limits = self._limits
        most = limits.archive_nbytes
        run = GitRunner(environment, repository, most, self._longest_s, on_line, cancellation)
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
            (folder / COMMIT).write_text(commit)
            tree = f"{commit}:{source.folder}" if source.folder else commit
            # A few kilobytes can name one file a million times: the whole is added up first, and
            # counted again as it is written.
            run(
                [*git, "ls-tree", "-r", "-t", "-l", "-z", tree], lambda out: check_tree(out, limits)
            )
            run(
                [*git, "archive", "--format=tar", tree],
                lambda out: copy_bounded(out, archive, limits),
            )
        except BaseException:
            archive.unlink(missing_ok=True)
            (folder / COMMIT).unlink(missing_ok=True)
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


def check_tree(listing: IO[bytes], limits: ArchiveLimits) -> str:
    """Check the sum of what ``git ls-tree -r -t -l -z`` lists, as it arrives.

    Raises:
        BuilderError: LIMIT, as soon as it is too much.
    """
    entries, nbytes, rest = 0, 0, b""
    while chunk := listing.read1(_CHUNK):  # type: ignore[attr-defined]  # pipes have it
        *lines, rest = (rest + chunk).split(b"\0")
        for line in lines:
            # "MODE TYPE ID SIZE<tab>PATH"; folders have "-" for a size.
            size = line.partition(b"\t")[0].split()[-1:]
            entries += 1
            nbytes += int(size[0]) if size and size[0].isdigit() else 0
            if entries > limits.files:
                raise too_many(limits.files)
            if nbytes > limits.unpacked_nbytes:
                raise too_large(limits.unpacked_nbytes, "unpacked zoo")
        if len(rest) > _MAX_ENTRY_BYTES:
            raise too_large(_MAX_ENTRY_BYTES, "path of a file")
    return ""


def copy_bounded(content: IO[bytes], path: Path, limits: ArchiveLimits) -> str:
    """Write an archive as it arrives.

    Raises:
        BuilderError: LIMIT, before more is written than a zoo may have.
    """
    left = limits.unpacked_nbytes + limits.files * _MAX_OVERHEAD_BYTES
    with path.open("xb") as file:
        while chunk := content.read1(_CHUNK):  # type: ignore[attr-defined]  # pipes have it
            left -= len(chunk)
            if left < 0:
                raise too_large(limits.unpacked_nbytes, "unpacked zoo")
            file.write(chunk)
    return ""


def _addresses(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    # IPv4 first: many machines have IPv6 addresses that lead nowhere.
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    return list(dict.fromkeys(str(each[4][0]) for each in found))
