"""Everything that is checked or run in this repository; ``./dev`` calls these sessions.

The tag ``test`` has what ``./dev test`` runs, and ``all`` what ``./dev test --all`` runs.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "tools"))

import dependent_tests  # noqa: E402  (needs the path above)
import workspace  # noqa: E402  (the same)

LOCK = "requirements.lock"
PACKAGES = workspace.packages()
PROTOS = ROOT / "packages" / "proto" / "src"

# A shell that starts this in the background lets it ignore Ctrl-C, and so would every process
# below; but what Ctrl-C does is among the things that are tried.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.stop_on_first_error = False
CORES = min(4, os.cpu_count() or 1)
# Tests also wait: for processes to start, for silence to be noticed. One more than there are cores.
PROCESSES = CORES + 1
LONG = frozenset(("builder", "client", "master", "recordio", "sql", "worker"))
"""The packages whose tests run in several processes. With those of the others, much of a process is
its imports."""
WITH_TENSORFLOW = frozenset(("master", "recordio", "worker"))
"""Those whose tests import TensorFlow, in each process and each of its fork servers. They compute
more than they wait."""

# Sessions without an environment of their own run in the one that ./dev setup made.
in_workspace = {"venv_backend": "none"}


def install(session: nox.Session, *args: str) -> None:
    """Install from the cache of packages; ask the network only for what is missing there."""
    command = ("uv", "pip", "install", "--quiet", "--constraint", LOCK)
    try:
        session.run_install(*command, "--offline", *args, external=True, silent=True)
    except CommandFailed:
        session.run_install(*command, *args, external=True)


def pytest(
    session: nox.Session, *args: str, processes: int = PROCESSES, dist: str = "worksteal"
) -> None:
    """Run tests, and name those that take longest. There is no second try: what fails is broken."""
    side_by_side = ("-n", str(processes), "--dist", dist)
    session.run(
        *("python", "-m", "pytest", "-q", "--durations=15"), *side_by_side, *args, *session.posargs
    )


@nox.session(tags=["test", "all"], **in_workspace)
def lint(session: nox.Session) -> None:
    """Check style, format, sizes of modules and classes, and private idioms."""
    session.run("ruff", "check", ".", external=True)
    session.run("ruff", "format", "--check", ".", external=True)
    session.run("sh", "-n", "dev", external=True)
    session.run("python", "tools/structure.py", "--check", external=True)
    session.run("python", "tools/words.py", "--check", external=True)


@nox.session(tags=["test", "all"], **in_workspace)
def types(session: nox.Session) -> None:
    """Check static types, strictly."""
    # All at once: each run of mypy reads what it knows of every library again.
    session.run("mypy", *(f"packages/{folder}/src" for folder in PACKAGES), external=True)


@nox.session(tags=["test", "all"], **in_workspace)
def imports(session: nox.Session) -> None:
    """Check the import contracts of pyproject.toml."""
    session.run("lint-imports", external=True)


def _generate(session: nox.Session, out: str) -> None:
    bin_dir = Path(sys.executable).parent
    session.run(
        str(bin_dir / "python"),
        "-m",
        "grpc_tools.protoc",
        f"-I{PROTOS}",
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        f"--mypy_out=quiet:{out}",
        f"--mypy_grpc_out=quiet:{out}",
        f"--plugin=protoc-gen-mypy={bin_dir / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={bin_dir / 'protoc-gen-mypy_grpc'}",
        *sorted(str(path) for path in PROTOS.glob("edl_proto/v1/*.proto")),
        external=True,
    )


@nox.session(**in_workspace)
def generate(session: nox.Session) -> None:
    """Write what derives from .proto files, options and metrics, dashboards and rules."""
    _generate(session, str(PROTOS))
    session.run("python", "tools/generate_options.py", external=True)
    session.run("python", "tools/generate_metrics.py", external=True)
    session.run("python", "deploy/grafana/write.py", external=True)
    session.run("python", "deploy/prometheus/write.py", external=True)


@nox.session(tags=["test", "all"], **in_workspace)
def generated(session: nox.Session) -> None:
    """Check that the committed files are those that ``generate`` writes."""
    session.run("python", "tools/generate_options.py", "--check", external=True)
    session.run("python", "tools/generate_metrics.py", "--check", external=True)
    session.run("python", "deploy/grafana/write.py", "--check", external=True)
    session.run("python", "deploy/prometheus/write.py", "--check", external=True)
    with tempfile.TemporaryDirectory() as out:
        _generate(session, out)
        fresh = {path.name: path.read_bytes() for path in Path(out).rglob("*.py*")}
    stale = [
        name
        for name, content in sorted(fresh.items())
        if (PROTOS / "edl_proto" / "v1" / name).read_bytes() != content
    ]
    if stale:
        session.error(f"stale stubs, run ./dev generate: {', '.join(stale)}")


_wheels: dict[str, str] = {}
"""The wheels that this run has built, by package."""


def _wheel(session: nox.Session, name: str) -> str:
    """A package's wheel, built by the first session that needs it."""
    if name not in _wheels:
        folder = Path(session.cache_dir, "wheels", name).resolve()
        with session.chdir(ROOT / "packages" / name):
            session.run(
                *(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)),
                external=True,
                silent=True,
            )
        _wheels[name] = str(max(folder.glob("*.whl"), key=os.path.getmtime))
    return _wheels[name]


@nox.session(tags=["test"], **in_workspace)
def unit(session: nox.Session) -> None:
    """The tests of all packages, in the environment that ./dev setup made."""
    for folder in PACKAGES:
        if any((ROOT / "packages" / folder / "tests").rglob("test_*.py")):
            _test_package(session, folder)


def _test_package(session: nox.Session, folder: str) -> None:
    several = CORES if folder in WITH_TENSORFLOW else PROCESSES
    pytest(session, f"packages/{folder}/tests", processes=several if folder in LONG else 0)


_IGNORED = ("--ignore=tests/kubernetes", "--ignore=tests/builder", "--ignore=tests/page")
"""The folders whose tests need a cluster, an engine or a browser."""
SMOKE = ("tests", *_IGNORED, "-m", "not product")


@nox.session(tags=["test"], **in_workspace)
def smoke(session: nox.Session) -> None:
    """The tests in tests/ that need Python and git only and take little time: see conftest.py."""
    pytest(session, *SMOKE, processes=2, dist="loadscope")


_cluster_tests: list[tuple[subprocess.Popen[bytes], Path]] = []
"""The tests on a cluster that this run has begun and not yet waited for, and their output."""


@nox.session(tags=["all"], **in_workspace)
def begin_cluster(session: nox.Session) -> None:
    """Begin the tests on a cluster, beside all that follows; ``integration`` waits for them.

    They mostly wait for pods, and use a core that other tests leave idle.
    """
    if _cluster_tests:
        return
    if missing := _missing_for_cluster(session):
        session.warn(f"no tests on Kubernetes, for this is missing: {missing}")
        return
    output = Path(session.cache_dir, "cluster-tests.log").resolve()
    command = (sys.executable, "-m", "pytest", "-q", "--durations=15", "tests/kubernetes")
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT)
    # However the run ends, the tests end what they have started.
    atexit.register(process.wait)
    atexit.register(process.send_signal, signal.SIGINT)
    _cluster_tests.append((process, output))


def _end_cluster(session: nox.Session) -> None:
    """Wait for the tests on a cluster and print their output; fails if they did."""
    for process, output in _cluster_tests:
        code = process.wait()
        print(output.read_text(errors="replace"), flush=True)
        if code != 0:
            session.error(f"tests in tests/kubernetes failed with exit code {code}")


@nox.session(tags=["all"])
@nox.parametrize("package", list(PACKAGES))
def package(session: nox.Session, package: str) -> None:
    """One package's tests in a clean environment: itself and what it may stand on."""
    own = workspace.own_requirements(PACKAGES[package])
    wheels = {folder: _wheel(session, folder) for folder in own}
    install(session, "--reinstall", "--no-deps", *wheels.values())
    others = [
        requirement
        for requirement in PACKAGES[package].test_requirements
        if not workspace.is_own(requirement)
    ]
    install(
        session,
        *("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", *others),
        *(f"{wheels[f]}[{','.join(extras)}]" if extras else wheels[f] for f, extras in own.items()),
    )
    (place,) = Path(session.virtualenv.location).glob("lib/python*/site-packages")
    workspace_place = ROOT / ".venv" / place.relative_to(session.virtualenv.location)
    _share_bytecode(workspace_place, place)
    try:
        _test_package(session, package)
    finally:
        _share_bytecode(place, workspace_place)


def _share_bytecode(source: Path, target: Path) -> None:
    """Give one environment what Python has compiled in another one, of files that both link to.

    Otherwise each process of each session compiles the same libraries, for a quarter of a minute.
    """
    for compiled in source.rglob("__pycache__/*.pyc"):
        module = compiled.parent.parent.relative_to(source) / f"{compiled.name.split('.')[0]}.py"
        place = target / compiled.relative_to(source)
        with contextlib.suppress(FileNotFoundError):  # the other environment lacks the file
            if not place.exists() and (source / module).samefile(target / module):
                place.parent.mkdir(exist_ok=True)
                os.link(compiled, place)


@nox.session(**in_workspace)
def surroundings(session: nox.Session) -> None:
    """The tests of packages that may depend on their user or on programs, and ``smoke``.

    CI runs this session as a new user on a machine with Python and git only, after it has run all
    tests as root: what else a test does is the same for both.
    """
    runs = [(*SMOKE, "-n", "2", "--dist", "loadscope")]
    for folder in PACKAGES:
        paths = sorted(Path("packages", folder, "tests").rglob("test_*.py"))
        chosen = tuple(f"{path}::{name}" for path in paths for name in dependent_tests.find(path))
        runs += [chosen] if chosen else []

    def run(tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "pytest", "-q", "--durations=15", *tests)
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.run(command, cwd=ROOT, check=False, **output)

    # A few tests of each package: most of a run is its start. The first one is the longest.
    with ThreadPoolExecutor(2) as pool:
        ended = []
        for done in pool.map(run, runs):
            print(done.stdout, flush=True)
            ended.append(done.returncode)
    if any(ended):
        session.error(f"the tests ended with exit codes {ended}")


@nox.session(**in_workspace)
def check(session: nox.Session) -> None:
    """Check what changed since the main branch, in about two minutes."""
    session.run("python", "tools/check.py", external=True)


@nox.session(**in_workspace)
def zoo_quality(session: nox.Session) -> None:
    """Measure how well the zoo's models learn: [MODEL...] [--seeds N] [--jobs N]."""
    session.run("python", "tools/zoo_quality.py", *session.posargs, external=True)


@nox.session(**in_workspace)
def table_quality(session: nox.Session) -> None:
    """Compare the models of tables with scikit-learn's: [TABLE...] [--seeds N] [--results FILE]."""
    session.run("python", "tools/table_quality.py", *session.posargs, external=True)


@nox.session(**in_workspace)
def ordinary_models(session: nox.Session) -> None:
    """Compare ordinary models with Keras's fit: [MODEL...] [--seeds N] [--results FILE]."""
    session.run("python", "tools/ordinary_models.py", *session.posargs, external=True)


@nox.session(**in_workspace)
def elasticdl_zoo(session: nox.Session) -> None:
    """Train ElasticDL's own model files, unmodified: --checkout PATH [--state NAME] [FILE...]."""
    session.run("python", "tools/elasticdl_zoo.py", *session.posargs, external=True)


@nox.session(tags=["all"], **in_workspace)
def integration(session: nox.Session) -> None:
    """Test the product through its command line, also with an engine, and on a cluster.

    What needs the engine is one group and runs in one process, in parallel with the others: see
    ``engine``. At the end come the results of ``begin_cluster``.
    """
    if session.posargs:
        pytest(session, dist="loadscope")
        return
    begin_cluster(session)
    # CI runs the smoke test after this, as an ordinary user.
    left_out = ("-m", "not smoke") if os.environ.get("EDL_TEST_SMOKE") == "later" else ()
    try:
        # Jobs wait more than other tests do: for their processes, and for silence to be noticed.
        args = ("tests", "--ignore=tests/kubernetes", *left_out)
        pytest(session, *args, processes=PROCESSES + 1, dist="loadscope")
    finally:
        _end_cluster(session)


def _missing_for_cluster(session: nox.Session) -> str:
    """Return what a test cluster lacks here; empty in CI, where its tests fail instead."""
    ask = "from tests.kubernetes.cluster.requirements import missing; print(*missing(), sep=', ')"
    missing = session.run("python", "-c", ask, silent=True)
    return "" if os.environ.get("EDL_TEST_ALL") else str(missing).strip()


@nox.session(**in_workspace)
def release(session: nox.Session) -> None:
    """Build all distributions into dist/; ``stamp VERSION`` sets the version."""
    session.run("python", "tools/release.py", *session.posargs, external=True)


@nox.session(**in_workspace)
def chaos(session: nox.Session) -> None:
    """Run real jobs under a schedule of faults: --minutes M --seed S [--platform kubernetes]."""
    # The cluster and its faults are those of the tests.
    path = os.pathsep.join(("tools", ".", "tests/kubernetes"))
    session.run("python", "-m", "chaos", *session.posargs, env={"PYTHONPATH": path}, external=True)


@nox.session(**in_workspace)
def simulate(session: nox.Session) -> None:
    """Run random schedules of the job state machine: --runs N [--from SEED] [--seconds S]."""
    script = "packages/master/tests/core/schedules.py"
    session.run("python", script, *session.posargs, external=True)


@nox.session(**in_workspace)
def engine(session: nox.Session) -> None:
    """Builder and jobs with a real container engine and registry, alone.

    Needs root and Debian's docker.io, docker-registry and debootstrap. Skipped where these are
    not, with the reason; CI must have them.
    """
    ask = "from tests.builder.docker_environment import missing_requirements as m; print(m())"
    reason = session.run("python", "-c", ask, silent=True)
    if isinstance(reason, str) and reason.strip() and not os.environ.get("EDL_TEST_ALL"):
        session.skip(reason.strip())
    pytest(session, *(() if session.posargs else ("tests/builder",)), processes=0)


@nox.session(**in_workspace)
def cluster(session: nox.Session) -> None:
    """A real Kubernetes on this machine: tests on it; or ``up``, ``image``, ``down``, ``status``.

    Needs root, Go, and some of Debian's packages. Skipped where these are missing, with the reason;
    CI must have them.
    """
    actions = ("up", "down", "status", "image", "build", "-h", "--help")
    if session.posargs and session.posargs[0] in actions:
        session.run("python", "-m", "tests.kubernetes.cluster", *session.posargs)
        return
    if missing := _missing_for_cluster(session):
        session.skip(f"missing: {missing}")
    pytest(session, *(() if session.posargs else ("tests/kubernetes",)), processes=0)


@nox.session(**in_workspace)
def images(session: nox.Session) -> None:
    """Build the images of client, builder, master and worker with the local engine."""
    session.run("python", "deploy/docker/images.py", *session.posargs, external=True)


@nox.session(**in_workspace)
def demo(session: nox.Session) -> None:
    """The main job on real handwritten digits."""
    # With --platform kubernetes, the cluster and the engine are those of the tests.
    session.run(
        *("python", "tools/demo.py", *session.posargs), env={"PYTHONPATH": "."}, external=True
    )


@nox.session(**in_workspace)
def bench(session: nox.Session) -> None:
    """Measure against peers in the same run."""
    session.run("python", "-m", "bench", *session.posargs, external=True)


@nox.session(**in_workspace)
def lock(session: nox.Session) -> None:
    """Write requirements.lock anew from the packages' own requirements."""
    session.run("uv", "lock", *session.posargs, external=True)
    session.run(
        *("uv", "export", "--all-packages", "--all-groups"),
        *("--extra", "convert", "--extra", "mlflow", "--extra", "sql"),
        *("--extra", "local", "--extra", "cpu", "--extra", "otlp"),
        *("--no-emit-workspace", "--no-annotate", "--no-header"),
        *("--quiet", "--output-file", LOCK),
        external=True,
        env={"UV_NO_PROGRESS": "1", **{k: v for k, v in os.environ.items() if k == "HOME"}},
    )
    session.run("python", "deploy/docker/lock.py", external=True)
