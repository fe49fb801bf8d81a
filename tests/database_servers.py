"""PostgreSQL and MariaDB of one test: own data folder, own socket, no port, no privileges."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PASSWORD = "hunter2-secret"
USER = "edl"
_START_S = 300
_USER_ID = 65534


@dataclass(frozen=True)
class Server:
    """A database server that accepts connections.

    Attributes:
        kind: postgresql or mysql, as URLs have it.
        folder: holds the socket.
    """

    kind: str
    folder: Path

    def url(self, user: str = USER, password: str | None = PASSWORD, database: str = "edl") -> str:
        secret = f":{password}" if password else ""
        place = {
            "postgresql": f"host={self.folder}",
            "mysql": f"unix_socket={self.folder / 'socket'}",
        }[self.kind]
        return f"{self.kind}://{user}{secret}@/{database}?{place}"


def missing() -> str:
    """What is not installed; empty if everything is."""
    programs = {
        "postgresql": _postgres_programs(),
        "mariadb-server-core": shutil.which("mariadbd", path=_path()),
        "mariadb-client-core": shutil.which("my_print_defaults", path=_path()),
    }
    return ", ".join(name for name, found in programs.items() if not found)


@contextmanager
def postgresql() -> Iterator[Server]:
    """A PostgreSQL with the superuser and the database ``edl``."""
    programs = _postgres_programs()
    assert programs is not None
    with _folder() as folder:
        data, secret = folder / "data", folder / "password"
        secret.write_text(PASSWORD)
        _run(
            [
                *(str(programs / "initdb"), "-D", str(data), "-U", USER, "--no-sync"),
                *("--auth=scram-sha-256", f"--pwfile={secret}", "-E", "UTF8", "--locale=C"),
            ],
            folder,
        )
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(folder),
            "fsync": "off",
            "max_connections": "10",
        }
        settings = [f"-c{name}={value}" for name, value in options.items()]
        command = [str(programs / "postgres"), "-D", str(data), *settings]
        server = Server("postgresql", folder)
        # SIGQUIT ends its processes at once.
        with _run_server(command, folder, signal.SIGQUIT, lambda: _answers(server, "postgres")):
            _execute(server.url(database="postgres"), "CREATE DATABASE edl")
            yield server


@contextmanager
def mariadb() -> Iterator[Server]:
    """A MariaDB with the user and the database ``edl``."""
    with _folder() as folder:
        data = folder / "data"
        _run(
            [
                *("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db"),
                *("--auth-root-authentication-method=normal", "--skip-name-resolve"),
            ],
            folder,
        )
        command = [
            *("mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={folder / 'socket'}"),
            *("--skip-networking", f"--pid-file={folder / 'pid'}", "--skip-log-bin"),
            *("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M"),
        ]
        server = Server("mysql", folder)
        root = server.url("root", None, "mysql")
        with _run_server(command, folder, signal.SIGKILL, lambda: _connects(root)):
            for statement in (
                "CREATE DATABASE edl CHARACTER SET utf8mb4",
                f"CREATE USER {USER}@localhost IDENTIFIED BY '{PASSWORD}'",
                f"GRANT ALL ON *.* TO {USER}@localhost WITH GRANT OPTION",
            ):
                _execute(root, statement)
            yield server


def _execute(url: str, statement: str) -> None:
    import sqlalchemy

    name, rest = url.split("://", 1)
    driver = {"postgresql": "psycopg", "mysql": "pymysql"}[name]
    engine = sqlalchemy.create_engine(f"{name}+{driver}://{rest}", isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
    finally:
        engine.dispose()


def execute(server: Server, *statements: str) -> None:
    """Run statements as the user ``edl``."""
    for statement in statements:
        _execute(server.url(), statement)


def _answers(server: Server, database: str) -> bool:
    return _connects(server.url(database=database))


def _connects(url: str) -> bool:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        _execute(url, "SELECT 1")
    except SQLAlchemyError:
        return False
    return True


def _postgres_programs() -> Path | None:
    """The folder of the newest PostgreSQL, which Debian keeps out of the path."""
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(found, key=lambda program: float(program.parts[-3]), default=None)
    return newest.parent if newest else None


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin"


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder of the servers' user: neither server runs as root. Its name fits a socket's."""
    folder = Path(tempfile.mkdtemp(prefix="edl-db-", dir="/tmp"))
    try:
        if os.getuid() == 0:
            os.chown(folder, _USER_ID, _USER_ID)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_unprivileged(*options: str) -> list[str]:
    """The beginning of a command that runs without privileges."""
    if os.getuid() == 0:
        options = (
            f"--reuid={_USER_ID}",
            f"--regid={_USER_ID}",
            "--clear-groups",
            *options,
        )
    return ["setpriv", *options] if options else []


def _environment(folder: Path) -> dict[str, str]:
    # Each server has its own TMPDIR: a MariaDB that starts deletes the temporary tables there.
    own = {"HOME": str(folder), "TMPDIR": str(folder)}
    return {"PATH": _path(), "LC_ALL": "C", "TZ": "UTC", **own}


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        _as_unprivileged() + list(command),
        cwd=folder,
        env=_environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout}\n{done.stderr}"


@contextmanager
def _run_server(
    command: Sequence[str], folder: Path, end: signal.Signals, ready: Callable[[], bool]
) -> Iterator[None]:
    """Run a server that ends with this context, and with this process however it ends."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            _as_unprivileged("--pdeathsig", end.name.removeprefix("SIG")) + list(command),
            cwd=folder,
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _START_S
        while not ready():
            assert process.poll() is None, f"{command[0]} ended:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{command[0]} does not start:\n{log.read_text()}"
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(end)
        process.wait(_START_S)
