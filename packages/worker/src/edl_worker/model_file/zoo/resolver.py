"""Which object of the zoo ``--model-def`` names, and which parts of the contract go with it."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import keras

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2
from edl_worker.model_file.arguments import ROLES, Definition
from edl_worker.model_file.errors import UserFrame, blame, place_of
from edl_worker.model_file.zoo import compatibility
from edl_worker.model_file.zoo.importer import ModelZoo

Form = Literal["instance", "class", "function", "spec"]

# Functions that return a model go by these names when only the module is given.
_FACTORIES = ("custom_model", "create_model", "build_model", "get_model", "make_model", "model_fn")

# Role -> name of a module's function, names of a class's default, and of a spec's method.
_MODULE_NAMES: dict[str, tuple[str, ...]] = {
    "dataset_fn": ("dataset_fn", "feed"),
    "input_fn": ("input_fn",),
    "loss": ("loss",),
    "optimizer": ("optimizer",),
    "eval_metrics_fn": ("eval_metrics_fn",),
    "feature_columns": ("feature_columns",),
    "label_columns": ("label_columns",),
}
_CLASS_NAMES: dict[str, tuple[str, ...]] = {
    "input": ("default_input", "default_input_fn", "default_dataset_fn"),
    "loss": ("default_loss",),
    "optimizer": ("default_optimizer",),
    "eval_metrics_fn": ("default_metrics", "default_eval_metrics_fn"),
    "feature_columns": ("default_feature_columns",),
    "label_columns": ("default_label_columns",),
}
_SPEC_NAMES: dict[str, str] = {
    "input": "create_dataset",
    "loss": "create_loss",
    "optimizer": "create_optimizer",
    "eval_metrics_fn": "create_metrics",
}
_SERVES_AS = {"dataset_fn": "input", "input_fn": "input"}
_INSTALLED_ROOTS = {"keras": "keras", "tf": "tensorflow", "tensorflow": "tensorflow"}


@dataclass(frozen=True, slots=True)
class ModelDefinition:
    """What ``--model-def`` names."""

    form: Form
    name: str
    value: Any
    module: ModuleType

    @property
    def where(self) -> str:
        if self.form == "instance":
            return f"{self.module.__file__}, {self.name}"
        return place_of(self.value, self.name)


def open_zoo(model_zoo: str) -> ModelZoo:
    """The folder of ``--model-zoo``.

    Raises:
        EdlError: MODEL_NOT_FOUND.
    """
    root = Path(model_zoo).expanduser()
    if not root.is_dir():
        what = "is a file" if root.is_file() else "does not exist"
        raise EdlError(
            error_pb2.MODEL_NOT_FOUND,
            f"the model zoo {model_zoo} {what}",
            where=f"--model-zoo {root.absolute()}",
            remedy="Give the folder that holds the model files; "
            "`edl zoo init DIR` makes one with an example.",
        )
    return ModelZoo.open(root.resolve())


def import_module(zoo: ModelZoo, dotted: str) -> ModuleType:
    """A module of the zoo.

    Raises:
        EdlError: MODEL_IMPORT, with the user's own frames.
    """
    try:
        with compatibility.served():
            return zoo.load(dotted)
    except (KeyboardInterrupt, EdlError):
        raise
    except BaseException as error:  # also SystemExit: a model file may not end the worker
        raise _import_error(error, zoo, dotted) from error


def _import_error(error: BaseException, zoo: ModelZoo, dotted: str) -> EdlError:
    path = zoo.locate(dotted)
    if isinstance(error, SyntaxError):
        place = UserFrame(error.filename or str(path), error.lineno or 0, "<module>")
        source = (error.text or "").strip()
        return EdlError(
            error_pb2.MODEL_IMPORT,
            f"{Path(place.filename).name} is no valid Python: {error.msg}"
            + (f": {source}" if source else ""),
            where=str(place),
            remedy="Mend the line.",
        )
    remedy = "Mend the file; the detail shows its own frames."
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        near = zoo.nearest(error.name)
        remedy = (
            f"Install it (pip install {top}) and add it to the zoo's requirements.txt"
            + (f", or import {near[0]} of the zoo" if near else "")
            + "."
        )
    elif isinstance(error, NameError) and error.name == "ElasticDLSpec":
        remedy = "Add `from elasticdl import ElasticDLSpec` to the file."
    elif isinstance(error, NameError) and error.name:
        remedy = f"Define or import {error.name}."
    return blame(
        error,
        zoo.root,
        code=error_pb2.MODEL_IMPORT,
        doing=f"importing {dotted} raised",
        fallback=str(path or dotted),
        remedy=remedy,
    )


def find_model(zoo: ModelZoo, model_def: str) -> ModelDefinition:
    """The model instance, class, function or spec of ``a.b.Name``, or the only one of ``a.b``.

    Raises:
        EdlError: MODEL_NOT_FOUND, MODEL_IMPORT or MODEL_CONTRACT.
    """
    if not all(part.isidentifier() for part in model_def.split(".")):
        raise _not_found(zoo, model_def, f"{model_def!r} is no dotted name")
    place = zoo.locate(model_def)
    if place is not None and place.is_file():
        return _only_model(import_module(zoo, model_def), model_def)
    module_name, _, name = model_def.rpartition(".")
    place = zoo.locate(module_name) if module_name else None
    if place is None or not place.is_file():
        raise _not_found(zoo, model_def, f"the model zoo has no module {module_name or model_def}")
    module = import_module(zoo, module_name)
    if not hasattr(module, name):
        known = [other for other, _ in _candidates(module)]
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known
        raise EdlError(
            error_pb2.MODEL_NOT_FOUND,
            f"{module_name} has no {name}",
            where=f"{module.__file__}",
            remedy=f"Its models are {', '.join(near)}."
            if near
            else "Define a Keras model, a model class or an ElasticDLSpec there.",
        )
    form = _form_of(getattr(module, name))
    if form is None:
        raise EdlError(
            error_pb2.MODEL_CONTRACT,
            f"{model_def} is a {type(getattr(module, name)).__name__}, no model",
            where=f"{module.__file__}, {name}",
            remedy="Name a Keras model, a keras.Model class, a function that returns a model, "
            "or an ElasticDLSpec class.",
        )
    return ModelDefinition(form, name, getattr(module, name), module)


def _only_model(module: ModuleType, dotted: str) -> ModelDefinition:
    candidates = dict(_candidates(module))
    if "model" in candidates:
        candidates = {"model": candidates["model"]}
    if len(candidates) == 1:
        ((name, form),) = candidates.items()
        return ModelDefinition(form, name, getattr(module, name), module)
    if candidates:
        raise EdlError(
            error_pb2.MODEL_NOT_FOUND,
            f"{dotted} has several models: {', '.join(candidates)}",
            where=f"{module.__file__}",
            remedy=f"Name one: --model-def {dotted}.{next(iter(candidates))}",
        )
    raise EdlError(
        error_pb2.MODEL_NOT_FOUND,
        f"{dotted} has no model",
        where=f"{module.__file__}",
        remedy="Define `model = keras.Model(...)`, a keras.Model class, or an ElasticDLSpec "
        "class; a function that returns a model is named: "
        f"--model-def {dotted}.FUNCTION",
    )


def _candidates(module: ModuleType) -> Iterator[tuple[str, Form]]:
    """Models of a module: its own classes, instances, and functions with a telling name."""
    for name, value in vars(module).items():
        form = _form_of(value)
        own = getattr(value, "__module__", None) == module.__name__
        match form:
            case "instance":
                yield name, form
            case "class" | "spec" if own and not inspect.isabstract(value):
                # A base that the documents print in front of the spec itself.
                if name != "ElasticDLSpec":
                    yield name, form
            case "function" if own and name in (*_FACTORIES, "model"):
                yield name, form
            case _:
                pass


def _form_of(value: Any) -> Form | None:
    if isinstance(value, keras.Model):
        return "instance"
    if inspect.isclass(value):
        if issubclass(value, keras.Model):
            return "class"
        return "spec" if callable(getattr(value, "create_model", None)) else None
    return "function" if inspect.isroutine(value) else None


def _not_found(zoo: ModelZoo, model_def: str, what: str) -> EdlError:
    near = zoo.nearest(model_def) or zoo.nearest(model_def.rpartition(".")[0])
    known = sorted(set(zoo.modules()))
    return EdlError(
        error_pb2.MODEL_NOT_FOUND,
        what,
        where=f"--model-def {model_def}, --model-zoo {zoo.root}",
        remedy=f"Did you mean {' or '.join(near)}?"
        if near
        else f"Its modules are {', '.join(known[:12])}."
        if known
        else "The folder holds no Python files.",
    )


# Parts.


def override(zoo: ModelZoo, found: ModelDefinition, option: str, dotted: str) -> Definition:
    """The part that ``--loss fintech.focal`` or the like names.

    Raises:
        EdlError: MODEL_NOT_FOUND or MODEL_IMPORT.
    """
    name = option.removeprefix("--").replace("-", "_")
    role = _SERVES_AS.get(name, name)
    if "." not in dotted:
        for owner in _owners(found):
            if hasattr(owner, dotted):
                return Definition(role, dotted, getattr(owner, dotted))
    for split in range(dotted.count("."), 0, -1):
        parts = dotted.split(".")
        module_name, names = ".".join(parts[:split]), parts[split:]
        place = zoo.locate(module_name)
        if place is None or not place.is_file():
            continue
        value: Any = import_module(zoo, module_name)
        for inner in names:
            if not hasattr(value, inner):
                near = difflib.get_close_matches(inner, dir(value), n=3, cutoff=0.4)
                raise EdlError(
                    error_pb2.MODEL_NOT_FOUND,
                    f"{option} {dotted}: {module_name} has no {'.'.join(names)}",
                    where=str(place),
                    remedy=f"Did you mean {' or '.join(near)}?" if near else f"Define {inner}.",
                )
            value = getattr(value, inner)
        return Definition(role, dotted, value)
    installed = _installed(dotted)
    if installed is not None:
        return Definition(role, dotted, installed)
    near = zoo.nearest(dotted.rpartition(".")[0] or dotted)
    raise EdlError(
        error_pb2.MODEL_NOT_FOUND,
        f"{option} {dotted}: the model zoo has no such module"
        if "." in dotted
        else f"{option} {dotted}: the model file has no such name",
        where=f"{option} {dotted}, --model-zoo {zoo.root}",
        remedy=f"Did you mean {near[0]}.{dotted.rpartition('.')[2]}?"
        if near
        else "Write module.name of a function in the model zoo.",
    )


def _installed(dotted: str) -> Any:
    """``keras.losses.Huber`` and the like."""
    root, _, rest = dotted.partition(".")
    if root not in _INSTALLED_ROOTS or not rest:
        return None
    value: Any = importlib.import_module(_INSTALLED_ROOTS[root])
    for name in rest.split("."):
        value = getattr(value, name, None)
    return value


def default_parts(found: ModelDefinition) -> dict[str, Definition]:
    """Parts by role as the model file itself has them; the input's role is ``input``."""
    parts: dict[str, Definition] = {}
    if found.form == "spec":
        parts = dict(_spec_parts(found))
    elif found.form in ("class", "instance"):
        parts = dict(_class_parts(found))
    for owner in _owners(found):
        for role, names in _MODULE_NAMES.items():
            for name in names:
                if name in vars(owner) and role not in parts:
                    parts[role] = Definition(_SERVES_AS.get(role, role), name, vars(owner)[name])
    # One input: the class's own before the module's, a dataset function before records.
    inputs = [parts.pop(role) for role in ("input", "dataset_fn", "input_fn") if role in parts]
    if inputs:
        parts["input"] = inputs[0]
    return parts


def _owners(found: ModelDefinition) -> list[ModuleType]:
    """The module that was named, and the one that defines the class or function."""
    defining = inspect.getmodule(found.value) if found.form != "instance" else None
    owners = [found.module]
    if defining is not None and isinstance(
        getattr(defining, "__loader__", None), type(found.module.__loader__)
    ):
        owners.append(defining)
    return owners


def _class_parts(found: ModelDefinition) -> Iterator[tuple[str, Definition]]:
    cls = found.value if inspect.isclass(found.value) else type(found.value)
    for role, names in _CLASS_NAMES.items():
        for name in names:
            member = inspect.getattr_static(cls, name, None)
            if member is not None:
                yield role, _member_part(role, f"{cls.__name__}.{name}", member, cls)
                break


def _spec_parts(found: ModelDefinition) -> Iterator[tuple[str, Definition]]:
    cls = found.value
    for role, name in _SPEC_NAMES.items():
        member = inspect.getattr_static(cls, name, None)
        if member is not None:
            yield role, _member_part(role, f"{cls.__name__}.{name}", member, cls)


def _member_part(role: str, name: str, member: Any, cls: type) -> Definition:
    """A class's member as a function; a plain one without ``self`` counts as static."""
    if isinstance(member, staticmethod):
        return Definition(role, name, member.__func__)
    if isinstance(member, classmethod):
        return Definition(role, name, member.__get__(None, cls))
    if inspect.isfunction(member):
        first = next(iter(inspect.signature(member).parameters), "")
        return Definition(role, name, member, drops_self=first == "self")
    return Definition(role, name, member)


def input_kind(part: Definition) -> Literal["dataset", "records"]:
    """Whether an input function takes a ``tf.data`` dataset or a list of records."""
    names = list(part.parameters())
    if any(name in ROLES["dataset"] for name in names):
        return "dataset"
    if any(name in ROLES["records"] for name in names):
        return "records"
    # Names that say nothing: the function's own name does, and then a second one, the mode.
    if part.name.endswith(("dataset_fn", "create_dataset", "feed")):
        return "dataset"
    if part.name.endswith("input_fn"):
        return "records"
    return "dataset" if len(part.required()) > 1 else "records"
