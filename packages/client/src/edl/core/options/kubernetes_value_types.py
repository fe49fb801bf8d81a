"""Kinds of options of jobs on Kubernetes, and what their texts mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edl.core.options.value_types import Integer, Names, Text, Texts, find_repeated

_QUANTITY = re.compile(r"\d+(\.\d+)?([mkKMGTPE]|[KMGTPE]i)?")
_RESOURCE = re.compile(r"(limits\.)?[a-z0-9]([-a-z0-9./]*[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_OWN_KEYS = re.compile(r"edl/.*|app\.kubernetes\.io/(component|instance|managed-by|name|part-of)")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class StateVolume:
    """The place of a job's state: an existing claim, or a new one of some size and class."""

    claim: str = ""
    size: str = ""
    storage_class: str = ""


@dataclass(frozen=True, slots=True)
class PodVolume:
    """A claim, Secret or ConfigMap that pods see as a folder; ``kind`` as in the option."""

    kind: str
    source: str
    path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """So many workers get a priority class; None: all others."""

    name: str
    workers: int | None


def is_own_key(key: str) -> bool:
    """Tell whether only edl may set a label or annotation."""
    return _OWN_KEYS.fullmatch(key) is not None


def state_volume(text: str) -> StateVolume:
    """Read ``CLAIM`` or ``SIZE[:CLASS]``; a size has a unit, such as ``20Gi``."""
    size, _, storage_class = text.partition(":")
    if _QUANTITY.fullmatch(size) and not size.isdigit():
        if storage_class or ":" not in text:
            return StateVolume(size=size, storage_class=_object(storage_class, "a class"))
    elif ":" not in text:
        return StateVolume(claim=_object(text, "a claim"))
    raise ValueError(f"{text!r} is neither the name of a claim nor SIZE[:CLASS]")


def pod_volume(text: str) -> PodVolume:
    """Read ``KIND/NAME:PATH[:ro]``."""
    source, _, rest = text.partition(":")
    kind, _, name = source.partition("/")
    path, _, mode = rest.partition(":")
    if kind not in ("claim", "secret", "configmap"):
        raise ValueError(f"{text!r} does not name a claim/NAME, secret/NAME or configmap/NAME")
    if not path.startswith("/") or path == "/" or mode not in ("", "ro"):
        raise ValueError(f"{text!r} must be KIND/NAME:/PATH[:ro], with an absolute PATH")
    read_only = kind != "claim" or mode == "ro"
    return PodVolume(kind, _object(name, f"a {kind}"), path.rstrip("/"), read_only)


def toleration(text: str) -> Mapping[str, str]:
    """Read ``KEY[=VALUE][:EFFECT]``; gives a toleration of a pod."""
    taint, colon, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    if not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
        raise ValueError(f"{text!r} is not a taint; write KEY[=VALUE][:EFFECT]")
    if colon and effect not in _EFFECTS:
        raise ValueError(f"{effect!r} is not one of {', '.join(_EFFECTS)}")
    matched = {"operator": "Equal", "value": value} if equals else {"operator": "Exists"}
    return {"key": key, **matched, **({"effect": effect} if effect else {})}


def variable(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(name):
        raise ValueError(f"{text!r} is not NAME=VALUE")
    if name.startswith("EDL_") and not name.startswith(("EDL_LOG_", "EDL_KAFKA_")):
        raise ValueError(f"{name} is set by edl")
    return name, value


def object_name(text: str) -> str:
    """Check the name of an object of the cluster."""
    return _object(text, "an object of the cluster")


def variable_source(text: str) -> tuple[str, str]:
    """Read ``secret/NAME`` or ``configmap/NAME``."""
    kind, _, name = text.partition("/")
    if kind not in ("secret", "configmap"):
        raise ValueError(f"{text!r} is neither secret/NAME nor configmap/NAME")
    return kind, _object(name, f"a {kind}")


def priorities(text: str) -> tuple[PriorityClass, ...]:
    """Read ``CLASS``, or a mix such as ``high=2,low=rest``."""
    if "=" not in text:
        return (PriorityClass(_object(text, "a class"), None),)
    found = []
    for part in text.split(","):
        name, _, share = part.strip().partition("=")
        workers = None if share == "rest" else Integer(1).read(share)
        found.append(PriorityClass(_object(name, "a class"), workers))
    if found[-1].workers is not None or any(it.workers is None for it in found[:-1]):
        raise ValueError(f"{text!r} does not end with one CLASS=rest")
    return tuple(found)


def ingress_host(text: str) -> str:
    """Check a host name that contains ``{name}``, and may contain ``{namespace}``."""
    try:
        host = text.format(name="name", namespace="namespace")
    except (KeyError, IndexError, ValueError):
        host = ""
    if "{name}" not in text or not _OBJECT.fullmatch(host):
        raise ValueError(f"{text!r} is not a host name with {{name}} in it")
    return text


@dataclass(frozen=True, slots=True)
class CheckedText(Text):
    """A text of some form: ``check`` raises ValueError for others."""

    check: Callable[[str], object] = str

    def read(self, value: object) -> str:
        text = Text.read(self, value)
        self.check(text)
        return text


@dataclass(frozen=True, slots=True)
class CheckedTexts(Texts):
    """One or more texts of some form."""

    check: Callable[[str], object] = str

    def read(self, value: object) -> tuple[str, ...]:
        texts = Texts.read(self, value)
        for text in texts:
            self.check(text)
        return texts


@dataclass(frozen=True, slots=True)
class ObjectNames(Names):
    """Names of objects of the cluster, separated by commas in a text."""

    def read(self, value: object) -> tuple[str, ...]:
        return tuple(object_name(name) for name in Names.read(self, value))


@dataclass(frozen=True, slots=True)
class Pairs:
    """Keys with values, written as ``KEY=VALUE,...`` or as a dict.

    Attributes:
        are_of_objects: they are of objects, some of whose keys edl sets itself.
    """

    metavar: str = "KEY=VALUE,..."
    annotation: str = "str | dict[str, str]"
    are_of_objects: bool = False

    def read(self, value: object) -> tuple[tuple[str, str], ...]:
        if isinstance(value, Mapping):
            pairs = [(str(key), str(item)) for key, item in value.items()]
        else:
            text = Text().read(value)
            pairs = []
            for part in text.split(","):
                key, equals, item = part.partition("=")
                if not equals:
                    raise ValueError(f"{part.strip()!r} is not KEY=VALUE")
                pairs.append((key.strip(), item.strip()))
        for key, item in pairs:
            self.check(key, item)
        if twice := find_repeated([key for key, _ in pairs]):
            raise ValueError(f"it contains the key {twice} twice")
        return tuple(pairs)

    def check(self, key: str, value: str) -> None:
        """Raises: ValueError: the key or its value has a wrong form."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} cannot be a key")
        if self.are_of_objects and is_own_key(key):
            raise ValueError(f"edl sets {key} itself")


@dataclass(frozen=True, slots=True)
class Labels(Pairs):
    """Keys and values that Kubernetes accepts as labels."""

    def check(self, key: str, value: str) -> None:
        Pairs.check(self, key, value)
        if not _VALUE.fullmatch(value) or len(value) > 63:
            raise ValueError(f"{value!r} cannot be the value of a label")


@dataclass(frozen=True, slots=True)
class Resources(Pairs):
    """Quantities of resources, such as ``cpu=4,memory=8Gi,nvidia.com/gpu=1``."""

    metavar: str = "RESOURCE=QUANTITY,..."

    def check(self, key: str, value: str) -> None:
        if not _RESOURCE.fullmatch(key):
            raise ValueError(f"{key!r} cannot be a resource")
        if not _QUANTITY.fullmatch(value):
            raise ValueError(f"{value!r} is not a quantity of {key}; write 4, 500m or 8Gi")


def _object(name: str, what: str) -> str:
    if name and not _OBJECT.fullmatch(name):
        raise ValueError(f"{name!r} cannot be the name of {what}")
    if not name and what != "a class":
        raise ValueError(f"the name of {what} is empty")
    return name
