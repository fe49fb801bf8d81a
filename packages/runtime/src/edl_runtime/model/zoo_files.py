"""Selects the files of a model zoo that belong to a model.

The client packs them for an image, and the worker copies them into the trained model. These are
the model's own file, the modules of the zoo that it imports, directly or not, and files of the
zoo that this code names in a text (``"vocabulary.txt"``). A file ``.edlignore`` in the zoo, in the
syntax of ``.gitignore``, leaves files out, and adds files with ``!``. Data, results of jobs,
secrets, and what tools leave behind are never included unless such a line names them.

Nothing of the zoo is executed.
"""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from edl_runtime.model.trained_model import TRAINED_MODEL
from edl_runtime.model.zoo_folders import places_of

NAMING_FIELDS = (
    *("model_def", "input_fn", "dataset_fn", "loss", "optimizer"),
    *("eval_metrics_fn", "feature_columns", "label_columns"),
)
"""Options of a job that name code of the zoo."""


def code_names(value_of: Callable[[str], str]) -> list[str]:
    """Return the dotted names by which a job finds its code in the zoo.

    Args:
        value_of: returns the value of one of ``NAMING_FIELDS``.
    """
    return [name for field in NAMING_FIELDS if (name := value_of(field))]


IGNORE_FILE = ".edlignore"
REQUIREMENTS = "requirements.txt"

_Verdict: TypeAlias = Callable[[str], bool | None]
"""What ``.edlignore`` says of a relative path: True leaves out, False adds, None says nothing."""

_NO_FOLDERS = frozenset(
    (
        *("__pycache__", "node_modules", "site-packages", ".git", ".hg", ".svn", ".venv", ".tox"),
        *(".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"),
    )
)
_DATA = ("*.recordio", "*.tfrecord", "*.tfrecords", "*.tfrecord.gz", "*.parquet", "*.arrow")
_SECRETS = (
    *(".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_ed25519*", "id_ecdsa*"),
    *(".netrc", ".npmrc", ".pypirc", "credentials", "credentials.*", "secrets.*", "*.kdbx"),
    *(".git-credentials", ".dockercfg", ".htpasswd", ".vault-token", "kubeconfig", "*.kubeconfig"),
    *("*.jks", "*.keystore", "*.ppk", "service[-_]account*.json"),
)
_SYSTEM = frozenset(("boot", "dev", "etc", "proc", "root", "run", "sys", "var"))
"""Folders of the root where no part of a zoo lies, unless the zoo lies in the same one."""
_PRIVATE_KEY = b" PRIVATE KEY-----"
_MAX_KEY_BYTES = 1 << 16  # octets of a file that may be one
_MARKS_OF_NO_ZOO = (TRAINED_MODEL, "pyvenv.cfg", "supervisor.json")
"""A folder with such a file is a job's result or state, or an environment of Python."""

_SMALL_NBYTES = 1_000_000
_MAX_OTHERS = 500
_MAX_OTHERS_NBYTES = 16_000_000
"""With more than that, a folder holds other things than code."""

_MAX_NAME_LENGTH = 255


@dataclass(frozen=True, slots=True)
class ZooFiles:
    """The files of a zoo that belong to a model.

    Attributes:
        paths: relative to the zoo, with ``/``, in order.
        nbytes: their size.
        secrets: files that would belong to it but look like secrets, and are left out.
    """

    paths: tuple[str, ...]
    nbytes: int
    secrets: tuple[str, ...]


def select(
    zoo: Path, names: Iterable[str] = (), loaded: Iterable[Path] = (), *, others: bool = False
) -> ZooFiles:
    """Select the files of a zoo that belong to a model.

    Args:
        zoo: an existing folder.
        names: dotted names as ``--model-def`` has them; none: those of every module of the zoo.
        loaded: files of modules that the model has imported, whichever way.
        others: also take small files that no code names, unless there are very many.
    """
    zoo = Path(os.path.realpath(zoo))  # which raises no error where links form a loop
    verdict = _ignore_file(zoo)
    code = _Code(zoo)
    roots = list(names)
    for name in roots:
        code.follow(name)
    for path in [*loaded, *(() if roots else _modules(zoo))]:
        code.add(path)
    kept = (zoo / REQUIREMENTS, zoo / IGNORE_FILE)  # a copy of the copy has the same files
    found = {path for path in (*code.modules, *code.named, *kept) if _is_regular(path)}
    if others:
        found.update(_small_files(zoo))
    chosen: dict[str, int] = {}
    secrets = []
    for path in found:
        name = path.relative_to(zoo).as_posix()
        says = verdict(name)
        if _leads_to_secret(zoo, path) or (
            says is None and (_looks_secret(path) or _looks_secret(path.resolve()))
        ):
            secrets.append(name)
        elif says is None and (_is_data(path) or _is_outside(zoo, path.parent)):
            continue
        elif not says:
            chosen[name] = path.stat().st_size
    for path in _find_added(zoo, verdict):
        if _leads_to_secret(zoo, path):
            continue
        chosen[path.relative_to(zoo).as_posix()] = path.stat().st_size
    return ZooFiles(tuple(sorted(chosen)), sum(chosen.values()), tuple(sorted(secrets)))


# --- the ignore file ---------------------------------------------------------------------------


def _ignore_file(zoo: Path) -> _Verdict:
    try:
        lines = (zoo / IGNORE_FILE).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return lambda _: None
    from pathspec import GitIgnoreSpec

    spec = GitIgnoreSpec.from_lines(lines)
    return lambda name: spec.check_file(name).include


def _find_added(zoo: Path, verdict: _Verdict) -> Iterator[Path]:
    """Return the files that ``.edlignore`` adds."""
    if not (zoo / IGNORE_FILE).is_file():
        return
    for path in _files(zoo):
        if verdict(path.relative_to(zoo).as_posix()) is False:
            yield path


# --- files -------------------------------------------------------------------------------------


def _files(zoo: Path) -> Iterator[Path]:
    """Yield the regular files below a zoo, without those in folders that are not part of it."""
    for folder, folders, names in os.walk(zoo):
        here = Path(folder)
        if here != zoo and _holds_no_zoo(names):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name not in _NO_FOLDERS)
        for name in sorted(names):
            if _is_regular(here / name):
                yield here / name


def _small_files(zoo: Path) -> list[Path]:
    """Return the small files of a zoo that are not hidden; none if they are hardly a model's."""
    small = (
        path
        for path in _files(zoo)
        if path.stat().st_size <= _SMALL_NBYTES
        and not any(part.startswith(".") for part in path.relative_to(zoo).parts)
    )
    found = list(islice(small, _MAX_OTHERS + 1))
    nbytes = sum(path.stat().st_size for path in found)
    return found if len(found) <= _MAX_OTHERS and nbytes <= _MAX_OTHERS_NBYTES else []


def _modules(zoo: Path) -> Iterator[Path]:
    return (path for path in _files(zoo) if path.suffix == ".py")


def _is_outside(zoo: Path, folder: Path) -> bool:
    """Tell whether a folder of the zoo is a result, an environment or a tool's own."""
    while folder != zoo:
        if folder.name in _NO_FOLDERS or any((folder / m).exists() for m in _MARKS_OF_NO_ZOO):
            return True
        folder = folder.parent
    return False


def _holds_no_zoo(names: Iterable[str]) -> bool:
    return any(mark in names for mark in _MARKS_OF_NO_ZOO)


def _is_regular(path: Path) -> bool:
    """Tell whether a path is a file, perhaps behind a link; pipes must not be opened."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def _looks_secret(path: Path) -> bool:
    """Tell whether a file is a secret, by its name or its content; code is not."""
    if path.suffix == ".py":
        return False
    if any(fnmatch(path.name.lower(), pattern) for pattern in _SECRETS):
        return True
    return _holds_key(path)


def _holds_key(path: Path) -> bool:
    try:
        return path.stat().st_size <= _MAX_KEY_BYTES and _PRIVATE_KEY in path.read_bytes()
    except OSError:
        return False


def _leads_to_secret(zoo: Path, path: Path) -> bool:
    """Tell whether a link leads out of the zoo to private files of its user.

    A zoo may come from others, and so may its ``.edlignore``, which therefore cannot add this.
    """
    target = path.resolve()
    if target.is_relative_to(zoo):
        return False
    common = Path(os.path.commonpath((zoo, target)))
    between = target.relative_to(common).parts
    if any(part.startswith(".") for part in between):
        return True  # ~/.ssh, ~/.aws, ~/.config
    if common == Path(common.anchor) and between[0] in _SYSTEM:
        return True
    return _looks_secret(target) or _holds_key(target)


def _is_data(path: Path) -> bool:
    return any(fnmatch(path.name.lower(), pattern) for pattern in _DATA)


# --- code --------------------------------------------------------------------------------------


class _Code:
    """The modules of a zoo that some of them reach, and the other files that they name."""

    def __init__(self, zoo: Path) -> None:
        self._zoo = zoo
        self.modules: set[Path] = set()
        self.named: set[Path] = set()

    def follow(self, dotted: str) -> bool:
        """Add the module of a dotted name, or of the longest part of it that is a module."""
        if places := places_of(self._zoo, dotted):
            for place in places:
                self.follow(place)
            return True
        parts = dotted.split(".")
        for count in range(len(parts), 0, -1):
            if (path := self._locate(parts[:count])) is not None:
                self.add(path)
                return True
        return False

    def add(self, path: Path) -> None:
        """Add a module with all that it needs."""
        path = Path(os.path.abspath(path))
        if path in self.modules or not path.is_relative_to(self._zoo) or not _is_regular(path):
            return
        self.modules.add(path)
        for folder in path.relative_to(self._zoo).parents:
            self.add(self._zoo / folder / "__init__.py")
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            return
        for node in ast.walk(tree):
            self._take(node, path)

    def _take(self, node: ast.AST, path: Path) -> None:
        match node:
            case ast.Import(names):
                for alias in names:
                    self.follow(self._strip_zoo_name(alias.name))
            case ast.ImportFrom(module, names, level):
                base = self._base(path, level or 0)
                target = [*base, *filter(None, (module or "").split("."))]
                for alias in names:
                    self.follow(self._strip_zoo_name(".".join([*target, alias.name])))
            case _:
                for text in _texts(node):
                    self._take_text(text, path)

    def _take_text(self, text: str, path: Path) -> None:
        """Take a text that may name a module that is imported later, or a file."""
        if len(text) > _MAX_NAME_LENGTH or "\n" in text or "\0" in text or not text.strip("./ "):
            return
        if all(part.isidentifier() for part in text.split(".")):
            self.follow(text)
        for folder in (path.parent, self._zoo):
            named = Path(os.path.abspath(folder / text))
            if named.is_relative_to(self._zoo) and _is_regular(named):
                self.named.add(named)

    def _base(self, path: Path, level: int) -> list[str]:
        """Return the package from which a relative import starts."""
        if not level:
            return []
        folder = path.relative_to(self._zoo).parent
        if path.with_suffix("").is_dir():  # this module is the package of the folder next to it
            folder = folder / path.stem
        parts = list(folder.parts)
        return parts[: len(parts) - (level - 1)]

    def _strip_zoo_name(self, dotted: str) -> str:
        """Strip the zoo's own name, by which its modules may be imported, too."""
        top, _, rest = dotted.partition(".")
        return rest if top == self._zoo.name and rest and self._locate([top]) is None else dotted

    def _locate(self, parts: list[str]) -> Path | None:
        place = self._zoo.joinpath(*parts)
        for path in (place / "__init__.py", place.with_name(place.name + ".py")):
            if _is_regular(path):
                return path
        return None


def _texts(node: ast.AST) -> Iterator[str]:
    """Yield the texts in an expression; the parts of a path that it joins are one text."""
    match node:
        case ast.Constant(str(text)):
            yield text
        case ast.BinOp(op=ast.Div()):
            parts: list[str] = []
            part: ast.expr = node
            while isinstance(part, ast.BinOp) and _is_text(part.right):
                parts.insert(0, str(ast.literal_eval(part.right)))
                part = part.left
            yield "/".join(parts)
        case ast.Call(args=args):
            texts = [str(a.value) for a in args if isinstance(a, ast.Constant) and _is_text(a)]
            if len(texts) > 1:
                yield "/".join(texts)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
