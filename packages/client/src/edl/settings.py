"""Sources of option values: flag, variable, project file and user file, in this order.

For options that protect the user, the user file goes before the project file. So does its platform,
if the user asks for signed images and the project for none.
"""

from __future__ import annotations

import functools
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edl.core.locations import absolute
from edl.core.options import BY_NAME, Given, Option, Verb, options_of, unknown
from edl.core.options.kubernetes import ClusterChoice
from edl.core.platforms import KUBERNETES, PROCESSES
from edl.core.problem import usage

command_flags: ContextVar[Mapping[str, str] | None] = ContextVar("command_flags", default=None)
"""Options of jobs that a command about jobs takes as flags: platform, context, namespace."""

_OF_CLUSTERS = ("platform", "context", "namespace")

PROJECT_FILE = "edl.toml"
COMMANDS = ("tune",)
"""Commands of optional packages that have a section of their own, such as ``[tune]``."""

SAFE_DIRECTORY = "EDL_SAFE_DIRECTORY"
"""Folders, separated by colons, whose project file is read whatever its owner; ``*`` is all."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The values in one settings file.

    Attributes:
        common: values for all verbs.
        verbs: values in the section of one verb, such as ``[train]``.
        commands: the sections of ``COMMANDS``, which these commands check.
        is_project: it lies with the project, and not in the user's own settings.
    """

    path: Path
    common: Mapping[str, Any] = field(default_factory=dict)
    verbs: Mapping[Verb, Mapping[str, Any]] = field(default_factory=dict)
    commands: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    is_project: bool = False

    def find_given(self, verb: Verb) -> dict[str, Given]:
        """Return the options that the file sets for a verb, and where."""
        found: dict[str, Given] = {}
        for option in options_of(verb):
            for section, values in (("", self.common), (f"[{verb}] ", self.verbs.get(verb, {}))):
                if option.name in values:
                    value = self._with_absolute_paths(option, values[option.name])
                    found[option.name] = Given(
                        value,
                        f"{self.path}: {section}{option.name}",
                        explicit=False,
                        from_project=self.is_project,
                    )
        return found

    def _with_absolute_paths(self, option: Option, value: Any) -> Any:
        """Return the value with relative paths made absolute: they start from the file's folder."""
        texts = [value] if isinstance(value, str) else value
        if not option.is_path or not isinstance(texts, list):
            return value
        if not all(isinstance(text, str) and text.strip() for text in texts):
            return value  # refused when the option is read
        base = str(self.path.parent)
        paths = [absolute(text, base, os.environ) for text in texts]
        return paths[0] if isinstance(value, str) else paths


def gather(
    verb: Verb,
    flags: Mapping[str, Given],
    *,
    environ: Mapping[str, str],
    cwd: Path,
) -> dict[str, Given]:
    """Return the values that the user set for a verb; the nearest source of an option wins.

    Args:
        flags: values on the command line or in the Python call.
        cwd: folder in which the search for a project file starts; it continues in its parents.

    Raises:
        Problem: a settings file cannot be read, names an unknown option, or is the project file of
            another user.
    """
    found: dict[str, Given] = {}
    if project := project_file(cwd, environ):
        found.update(project.find_given(verb))
    file = user_file(environ)
    own = file.find_given(verb) if file else {}
    found |= {n: v for n, v in own.items() if n not in found or BY_NAME[n].protects_user}
    for option in options_of(verb):
        value = environ.get(option.variable)
        if value and not option.per_run:
            found[option.name] = Given(value, f"${option.variable}", explicit=False)
    found.update(flags)
    if "platform" in own and _switches_off_signatures(found):
        found["platform"] = own["platform"]
    return found


def _switches_off_signatures(found: Mapping[str, Given]) -> bool:
    """Return whether the user asks for signed images, and the project's platform uses none."""
    key, platform = found.get("image_public_key"), found["platform"]
    asked = key is not None and not key.from_project
    in_processes = str(platform.value).strip().lower() == PROCESSES.name
    return asked and platform.from_project and in_processes


def command_section(
    name: str, *, environ: Mapping[str, str], cwd: Path
) -> tuple[Mapping[str, Any], str]:
    """Return the section of one of ``COMMANDS`` in the project file, and the file's path.

    Both are empty if there is none.

    Raises:
        Problem: as in ``gather``.
    """
    project = project_file(cwd, environ)
    if project is None or name not in project.commands:
        return {}, ""
    return project.commands[name], str(project.path)


@contextmanager
def clusters_of(options: Mapping[str, Any]) -> Iterator[None]:
    """Have ``cluster_choice`` return the cluster of jobs with these options."""
    given = {name: str(options[name]) for name in _OF_CLUSTERS if options.get(name)}
    token = command_flags.set({**(command_flags.get() or {}), **given})
    try:
        yield
    finally:
        command_flags.reset(token)


def cluster_choice(environ: Mapping[str, str], cwd: Path) -> ClusterChoice | None:
    """Return the cluster whose jobs commands look at; None unless Kubernetes is the platform.

    A kubeconfig alone chooses no cluster: commands about local jobs would wait for it. If jobs of
    one verb alone run in a cluster, it is theirs.

    Raises:
        Problem: as in ``gather``, if it depends on the settings files.
    """
    flags = command_flags.get() or {}
    platform = flags.get("platform") or environ.get(BY_NAME["platform"].variable)
    if platform and platform != KUBERNETES:
        return None
    for verb in Verb:
        found = gather(verb, {}, environ=environ, cwd=cwd)
        values = {name: str(entry.value) for name, entry in found.items()} | dict(flags)
        if values.get("platform") == KUBERNETES:
            everywhere = "all_namespaces" in flags
            return ClusterChoice(values.get("context", ""), values.get("namespace", ""), everywhere)
    return None


def user_file(environ: Mapping[str, str]) -> SettingsFile | None:
    """Return the user's settings: ``~/.config/edl/config.toml``, or in ``$XDG_CONFIG_HOME``.

    Like other programs, it ignores a relative path, such as ``~`` where the home folder is
    not known: it would lead to a file of the owner of the working directory.
    """
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "~"), ".config")
    path = Path(os.path.expanduser(base), "edl", "config.toml")
    return _parse(path, _load(path)) if path.is_absolute() and path.is_file() else None


def project_file(cwd: Path, environ: Mapping[str, str]) -> SettingsFile | None:
    """Return the nearest ``edl.toml``, or ``pyproject.toml`` with ``[tool.edl]``, from ``cwd`` up.

    Raises:
        Problem: it cannot be read, names an unknown option, or others than the user can write it.
    """
    for folder in (cwd, *cwd.parents):
        path = folder / PROJECT_FILE
        if path.is_file():
            _check_owner(path, environ)
            return _parse(path, _load(path), is_project=True)
        path = folder / "pyproject.toml"
        if path.is_file():
            tools = _load(path).get("tool")
            if isinstance(tools, dict) and "edl" in tools:
                _check_owner(path, environ)
                return _parse(path, _table(path, tools["edl"]), is_project=True)
    return None


def _check_owner(path: Path, environ: Mapping[str, str]) -> None:
    """Refuse a file that another user put above the user's folder, as git does.

    Its settings choose the image that runs, the platform, and the builder that gets the token.
    """
    safe = environ.get(SAFE_DIRECTORY, "").split(":")
    folder = path.parent
    if "*" in safe or any(Path(each) in (folder, folder.resolve()) for each in safe if each):
        return
    trusted = {os.getuid(), 0}
    if os.getuid() == 0 and environ.get("SUDO_UID", "").isdecimal():
        trusted.add(int(environ["SUDO_UID"]))
    # Another user's link leads wherever they like, so it counts as well as what it leads to.
    found = [path.lstat(), path.stat(), folder.stat()]
    if foreign := [each.st_uid for each in found[:2] if each.st_uid not in trusted]:
        what = f"a settings file of another user (number {foreign[0]}) is not read"
    elif any(_others_write(each) for each in found):
        what = "a settings file that every user can write is not read"
    else:
        return
    raise usage(
        what,
        where=str(path),
        remedy=f"If you trust it, set {SAFE_DIRECTORY}={folder}; or put your own {PROJECT_FILE}"
        " into your folder.",
    )


def _others_write(found: os.stat_result) -> bool:
    """Return whether every user can write a file, or replace what is in a folder."""
    mode = found.st_mode
    if stat.S_ISLNK(mode) or (stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
        return False
    return bool(mode & stat.S_IWOTH)


def _load(path: Path) -> dict[str, Any]:
    try:
        return _parse_toml(path.read_bytes())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise usage(
            f"a settings file cannot be read: {error}",
            where=str(path),
            remedy="It is TOML, with lines such as num-workers = 2, and with texts in quotes: "
            'strategy = "allreduce"',
        ) from None


@functools.lru_cache(maxsize=2)
def _parse_toml(content: bytes) -> dict[str, Any]:
    """Parse the user's and the project's file once: a command may ask for each verb's options."""
    return tomllib.loads(content.decode("utf-8-sig"))  # some editors begin a file with a BOM


def _table(path: Path, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise usage("tool.edl is not a table", where=str(path), remedy="Begin it with [tool.edl].")
    return value


def _parse(path: Path, table: Mapping[str, Any], *, is_project: bool = False) -> SettingsFile:
    common: dict[str, Any] = {}
    verbs: dict[Verb, dict[str, Any]] = {}
    commands: dict[str, dict[str, Any]] = {}
    for key, value in table.items():
        if isinstance(value, dict) and key in set(Verb):
            verbs[Verb(key)] = {_name(path, name, Verb(key)): v for name, v in value.items()}
        elif isinstance(value, dict) and key in COMMANDS:
            commands[key] = value
        else:
            common[_name(path, key, None)] = value
    return SettingsFile(path, common, verbs, commands, is_project)


def _name(path: Path, key: str, verb: Verb | None) -> str:
    name = key.replace("-", "_")
    known = BY_NAME if verb is None else {option.name: option for option in options_of(verb)}
    if name in BY_NAME and BY_NAME[name].per_run:
        raise usage(
            f"{key} cannot be set in a file",
            where=str(path),
            remedy=f"Write --{key.replace('_', '-')} on the command line.",
        )
    if name not in known:
        raise unknown(key, known, str(path), verb)
    return name
