"""Resolves names of the command line: the model of ``--model-def``, and replaced definitions."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model.zoo_folders import places_of
from edl_worker.model_file.arguments import Definition, Role
from edl_worker.model_file.errors import type_with_article
from edl_worker.model_file.forms.model_definition import ModelDefinition
from edl_worker.model_file.forms.selection import candidates, model_definition
from edl_worker.model_file.known_names import did_you_mean
from edl_worker.model_file.zoo.importer import ModelZoo
from edl_worker.model_file.zoo.module_import import import_module

KnownName = Callable[[Role, str], bool]
"""Whether the framework has a loss, optimizer or metric of this name."""

_NAMED_ROLES: tuple[Role, ...] = ("loss", "optimizer", "eval_metrics_fn")
"""Roles whose definition may be a name of Keras."""

_INSTALLED_PACKAGES = {"keras": "keras", "tf": "tensorflow", "tensorflow": "tensorflow"}


def find_model(zoo: ModelZoo, model_def: str) -> ModelDefinition:
    """Return the model that ``a.b.Name`` names, or the only one of the module ``a.b``.

    Raises:
        EdlError: MODEL_NOT_FOUND, MODEL_IMPORT or MODEL_CONTRACT.
    """
    if not all(part.isidentifier() for part in model_def.split(".")):
        raise _not_found(zoo, model_def, f"{model_def!r} is not a dotted name")
    model_def = _full_name(zoo, "--model-def", model_def)
    if _has_module(zoo, model_def):
        return _only_model(import_module(zoo, model_def), model_def)
    module_name, _, name = model_def.rpartition(".")
    if not module_name or not _has_module(zoo, module_name):
        raise _not_found(zoo, model_def, f"the model zoo has no module {module_name or model_def}")
    module = import_module(zoo, module_name)
    if not hasattr(module, name):
        raise _no_such_name(module, module_name, name)
    value = getattr(module, name)
    definition = model_definition(name, value, module)
    if definition is None:
        raise EdlError(
            ErrorCode.MODEL_CONTRACT,
            f"{model_def} is {type_with_article(value)}, not a model",
            where=f"{module.__file__}, {name}",
            remedy="Name a Keras model, a keras.Model class, a function that returns a model, "
            "or an ElasticDLSpec class.",
        )
    return definition


def _full_name(zoo: ModelZoo, option: str, dotted: str) -> str:
    """Return the name with the file in it, if it is one of a folder without ``__init__.py``."""
    places = places_of(zoo.root, dotted)
    if len(places) > 1:
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"{option} {dotted} is in several files: {', '.join(places)}",
            where=f"{option} {dotted}, --model-zoo {zoo.root}",
            remedy=f"Name one: {option} {places[0]}",
        )
    return places[0] if places else dotted


def _has_module(zoo: ModelZoo, dotted: str) -> bool:
    path = zoo.locate(dotted)
    return path is not None and path.is_file()


def _only_model(module: ModuleType, dotted: str) -> ModelDefinition:
    models = {definition.name: definition for definition in candidates(module)}
    if "model" in models:
        return models["model"]
    if len(models) == 1:
        return next(iter(models.values()))
    if models:
        raise EdlError(
            ErrorCode.MODEL_NOT_FOUND,
            f"{dotted} has several models: {', '.join(models)}",
            where=f"{module.__file__}",
            remedy=f"Name one of them, for example with --model-def {dotted}.{next(iter(models))}.",
        )
    value = vars(module).get("model")
    raise EdlError(
        ErrorCode.MODEL_NOT_FOUND,
        f"{dotted} has no model"
        + (f": its `model` is a {type(value).__name__}" if value is not None else ""),
        where=f"{module.__file__}",
        remedy="Define `model = keras.Model(...)`, a keras.Model class, or an ElasticDLSpec "
        f"class; name a function that returns a model with --model-def {dotted}.FUNCTION",
    )


def _no_such_name(module: ModuleType, module_name: str, name: str) -> EdlError:
    known = [definition.name for definition in candidates(module)]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known
    return EdlError(
        ErrorCode.MODEL_NOT_FOUND,
        f"{module_name} has no {name}",
        where=f"{module.__file__}",
        remedy=f"Its models are {', '.join(near)}."
        if near
        else "Define a Keras model, a model class or an ElasticDLSpec there.",
    )


def _not_found(zoo: ModelZoo, model_def: str, what: str) -> EdlError:
    near = zoo.nearest(model_def) or zoo.nearest(model_def.rpartition(".")[0])
    known = sorted(set(zoo.modules()))
    if near:
        remedy = f"Did you mean {' or '.join(near)}?"
    elif known:
        remedy = f"Its modules are {', '.join(known[:12])}."
    else:
        remedy = "The folder has no Python files."
    return EdlError(
        ErrorCode.MODEL_NOT_FOUND,
        what,
        where=f"--model-def {model_def}, --model-zoo {zoo.root}",
        remedy=remedy,
    )


def find_definition(
    zoo: ModelZoo,
    model: ModelDefinition,
    role: Role,
    option: str,
    dotted: str,
    is_known: KnownName,
    suggest: Callable[[Role, str], str | None],
) -> Definition:
    """Return the definition that an option such as ``--loss shared.losses.focal`` names.

    A name without a dot is one of the model file. Otherwise the zoo's modules are searched, then
    Keras and TensorFlow.

    Args:
        is_known: tells names of Keras.
        suggest: returns a sentence with the names of Keras that are nearest to one.

    Raises:
        EdlError: MODEL_NOT_FOUND or MODEL_IMPORT.
    """
    if "." not in dotted:
        for module in model.modules():
            if hasattr(module, dotted):
                value = getattr(module, dotted)
                return Definition(role, dotted, value, file=module.__file__ or "")
    dotted = _full_name(zoo, option, dotted)
    parts = dotted.split(".")
    for split in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:split])
        if _has_module(zoo, module_name):
            value = _member(zoo, module_name, parts[split:], f"{option} {dotted}")
            return Definition(role, dotted, value, file=str(zoo.locate(module_name)))
    installed = _find_installed(dotted)
    if installed is not None:
        return Definition(role, dotted, installed)
    if role in _NAMED_ROLES and (names := _known_names(role, dotted, is_known)):
        return Definition(role, dotted, names if role == "eval_metrics_fn" else names[0])
    if role == "eval_metrics_fn":  # one of several names of Keras may be wrong
        names = [name.strip() for name in dotted.split(",")]
        dotted = next((each for each in names if each and not is_known(role, each)), dotted)
        parts = dotted.split(".")
    near = zoo.nearest(dotted.rpartition(".")[0] or dotted)
    suggestion = _suggest_installed(dotted)
    if "." not in dotted:
        own = [name for module in model.modules() for name in vars(module)]
        suggestion = suggest(role, dotted) or did_you_mean(dotted, own)
    raise EdlError(
        ErrorCode.MODEL_NOT_FOUND,
        f"{option} {dotted}: {parts[0]} has no such name"
        if parts[0] in _INSTALLED_PACKAGES and len(parts) > 1
        else f"{option} {dotted}: the model zoo has no such module"
        if "." in dotted
        else f"{option} {dotted}: the model file has no such name"
        + (", and neither has Keras" if role in _NAMED_ROLES else ""),
        where=f"{option} {dotted}, --model-zoo {zoo.root}",
        remedy=suggestion
        or (
            f"Did you mean {near[0]}.{parts[-1]}?"
            if near
            else "Write module.name of a function in the model zoo."
        ),
    )


def _known_names(role: Role, given: str, is_known: KnownName) -> list[str]:
    """Return the names in ``--loss mse`` or ``--eval-metrics-fn accuracy,mae`` if Keras has all."""
    names = [name.strip() for name in given.split(",")]
    if not all(is_known(role, name) for name in names):
        return []
    return names if role == "eval_metrics_fn" or len(names) == 1 else []


def _member(zoo: ModelZoo, module_name: str, names: Sequence[str], option: str) -> Any:
    value: Any = import_module(zoo, module_name)
    for name in names:
        if not hasattr(value, name):
            near = difflib.get_close_matches(name, dir(value), n=3, cutoff=0.4)
            raise EdlError(
                ErrorCode.MODEL_NOT_FOUND,
                f"{option}: {module_name} has no {'.'.join(names)}",
                where=str(zoo.locate(module_name)),
                remedy=f"Did you mean {' or '.join(near)}?" if near else f"Define {name}.",
            )
        value = getattr(value, name)
    return value


def _suggest_installed(dotted: str) -> str | None:
    """Return "Did you mean …?" for a name that a module of Keras or TensorFlow does not have."""
    owner, _, name = dotted.rpartition(".")
    found = _find_installed(owner) if owner.partition(".")[2] else None
    return did_you_mean(name, dir(found)) if found is not None else None


def _find_installed(dotted: str) -> Any:
    """Return the object that ``keras.losses.Huber`` or the like names; None if there is none."""
    package, _, rest = dotted.partition(".")
    if package not in _INSTALLED_PACKAGES or not rest:
        return None
    value: Any = importlib.import_module(_INSTALLED_PACKAGES[package])
    for name in rest.split("."):
        value = getattr(value, name, None)
    return value
