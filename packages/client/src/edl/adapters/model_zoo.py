"""Checks a model zoo without running any of its code."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from itertools import islice
from pathlib import Path

from edl.adapters.git_checkout import fetch as fetch
from edl.adapters.model_code import hash_code as hash_code
from edl.core.file_reads import reads_at_import
from edl.core.model_file import Candidate, Definitions, candidates, definitions
from edl.core.model_parameters import parameters
from edl.core.parameter_values import Parameter
from edl.core.submission import Submission
from edl.core.suggestions import did_you_mean
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.model import outside_files, zoo_files
from edl_runtime.model.zoo_files import ZooFiles, code_names
from edl_runtime.model.zoo_folders import places_of

_OVERRIDES = (
    "input_fn",
    "dataset_fn",
    "loss",
    "optimizer",
    "eval_metrics_fn",
    "feature_columns",
    "label_columns",
)
_KERAS_NAMES = ("--loss", "--optimizer", "--eval-metrics-fn")
_MISSPELT = 0.7  # how much a name resembles one of the file that was meant: lost, loss
_LISTED = 8  # model files that an error names
_MANY = 500  # model files that are looked at for a suggestion


def check(job: Submission) -> None:
    """Check that a zoo has what a training job names, as far as the source text shows.

    Raises:
        EdlError: MODEL_NOT_FOUND or MODEL_IMPORT (it is no Python).
    """
    zoo = Path(job.model_zoo)
    check_folder(zoo)
    own = _find_model(zoo, job.model_def)
    for option in _OVERRIDES:
        name = getattr(job, option)
        if name:
            _check_override(zoo, own, "--" + option.replace("_", "-"), name)


def files_of(job: Submission) -> ZooFiles:
    """Return what belongs to the model of a job whose zoo is a folder of this machine."""
    return zoo_files.select(Path(job.model_zoo), code_names(partial(getattr, job)))


def find_outside_files(job: Submission, files: ZooFiles) -> tuple[str, ...]:
    """Return a warning for each file outside the zoo that a job's code reads or imports.

    A path relative to the working folder leads outside, as a job runs a copy of its zoo. These are
    the files that the source text shows; a worker hears of all.
    """
    root = Path(job.model_zoo).resolve()
    own = [root / file for each in candidates(job.model_def) for file in each.files]
    lines: dict[str, str] = {}
    for name in files.paths:
        file = root / name
        if file.suffix != ".py":
            continue
        entry = job.model_def.rpartition(".")[2] if file in own else ""
        try:
            found = reads_at_import(file.read_text(encoding="utf-8-sig"), str(file), entry)
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        for number, text in found:
            path = os.path.abspath(text)
            if os.path.isfile(path) and _is_outside(path, root, text):
                lines.setdefault(path, f"{file.name}:{number}")
    return tuple(
        outside_files.describe(path, line, root)
        for path, line in islice(lines.items(), outside_files.MAX_FILES)
    )


def _is_outside(path: str, zoo: Path, text: str) -> bool:
    if path.endswith(".py"):
        return outside_files.is_code_outside(path, zoo)
    is_relative = not os.path.isabs(text) and outside_files.is_data(path)
    return is_relative or outside_files.is_outside(path, zoo)


def source_of(zoo: Path, model_def: str) -> tuple[str, str]:
    """Return the text of a model's file, and the model's name in it.

    Both are empty if the zoo is no folder of this machine.

    Raises:
        EdlError: MODEL_NOT_FOUND or MODEL_IMPORT; the folder does not have the model.
    """
    if zoo.is_dir():
        _find_model(zoo, model_def)
    for candidate in reversed(candidates(_full_name(zoo, "--model-def", model_def))):
        file = _file_of(zoo, candidate)
        if file is not None:
            return file.read_text(encoding="utf-8-sig", errors="replace"), candidate.attribute
    return "", ""


def place_of(zoo: Path, model_def: str) -> Path:
    """Return the file of a model that ``source_of`` has found."""
    files = map(partial(_file_of, zoo), candidates(_full_name(zoo, "--model-def", model_def)))
    return [file for file in files if file is not None][-1]


def parameters_of(zoo: Path, model_def: str) -> Mapping[str, Sequence[Parameter]] | None:
    """Return all parameters that a model may take, and more, by name; None if others may exist.

    Raises:
        EdlError: as for ``source_of``.
    """
    text, name = source_of(zoo, model_def)
    if not text:
        return None
    full = _full_name(zoo, "--model-def", model_def)
    module = full.rpartition(".")[0] if name else full
    return parameters(module, name, lambda module: _text_of(zoo, module))


def _text_of(zoo: Path, module: str) -> tuple[str, str] | None:
    """Return the text of a module, and the package that it is in, or is."""
    file = _file_of(zoo, Candidate(tuple(module.split(".")), ""))
    if file is None:
        return None
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    return file.read_text(encoding="utf-8-sig", errors="replace"), package


def check_folder(zoo: Path) -> None:
    """Raises: EdlError: MODEL_NOT_FOUND, if this is no folder."""
    if not zoo.is_dir():
        there = "is a file, not a folder" if zoo.exists() else "does not exist"
        raise _not_found(
            f"the model zoo {there}",
            str(zoo),
            "--model-zoo names the folder that holds the model files.",
        )


def _find_model(zoo: Path, model_def: str) -> Candidate:
    """Return the module of the model; the name within it is checked, too."""
    readings = candidates(_full_name(zoo, "--model-def", model_def))
    if not readings:
        raise _not_found(
            f"--model-def {model_def} is not a dotted name",
            str(zoo),
            _remedy_for_path(zoo, model_def),
        )
    # The module alone comes last, and wins where both exist: a.b.Name is then a file.
    for candidate in reversed(readings):
        file = _file_of(zoo, candidate)
        if file is None:
            continue
        known = _read(file)
        if candidate.attribute and known.lacks(candidate.attribute):
            if candidate.attribute == "py":
                raise _not_found(
                    f"--model-def {model_def} is the name of a file, not a dotted name",
                    str(file),
                    f"Leave .py out: --model-def {model_def.removesuffix('.py')}",
                )
            raise _not_found(
                f"{file.name} has no {candidate.attribute}",
                str(file),
                did_you_mean(candidate.attribute, known.names)
                or "--model-def names a model, a class or a function at the top of the file.",
            )
        return candidate
    files = " or ".join(str(zoo / name) for name in (readings[0].files[0], readings[-1].files[0]))
    raise _not_found(
        f"--model-def {model_def} names no file of the model zoo",
        files if len(readings) > 1 else str(zoo / readings[0].files[0]),
        did_you_mean(model_def, _known_names(zoo)) or _contents(zoo),
    )


def _remedy_for_path(zoo: Path, model_def: str) -> str:
    """Return what to write instead of a name that is not dotted, such as the path of a file."""
    dotted = model_def.replace(":", ".")
    if all(part.isidentifier() for part in dotted.split(".")):
        return f"Write a dot: --model-def {dotted}"
    path = Path(model_def)
    with suppress(ValueError):
        path = path.absolute().relative_to(zoo.absolute())
    parts = path.with_suffix("").parts if path.suffix == ".py" else path.parts
    if parts and all(part.isidentifier() for part in parts):
        return f"Leave the folder of the zoo, .py and slashes out: --model-def {'.'.join(parts)}"
    return "Write a.b.Name for Name in a/b.py of the zoo, without .py and slashes."


def _expression_error(option: str, value: str) -> EdlError:
    """Return the error for a call, such as Adam(0.001), where an option takes a name."""
    name, _, arguments = value.partition("(")
    remedy = f"Write the name alone: {option} {name.strip()}."
    if option == "--optimizer":
        number = re.search(r"\d[\d.e-]*", arguments)
        remedy += f" --set learning-rate={number.group() if number else 'RATE'} sets its rate."
    return EdlError(
        ErrorCode.USAGE,
        f"{option} {value} is a call, and not a name",
        where=option,
        remedy=f"{remedy} For other arguments, define a function in the model file that returns "
        f"the object, and name it: {option} FUNCTION.",
    )


def _check_override(zoo: Path, own: Candidate, option: str, name: str) -> None:
    if "(" in name:
        raise _expression_error(option, name)
    if option == "--eval-metrics-fn" and "," in name:
        return  # names of Keras, which a worker looks up
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise _not_found(
            f"{option} {name} is not a dotted name",
            option,
            "Write a name of the model file, or module.name of the zoo.",
        )
    parts = _full_name(zoo, option, name).split(".")
    owner = own if len(parts) == 1 else Candidate(tuple(parts[:-1]), parts[-1])
    file = _file_of(zoo, owner)
    # A module that the zoo lacks may be an installed one; the worker will check.
    if file is None:
        return
    known = _read(file)
    if known.lacks(parts[-1]):
        may_be_keras = option in _KERAS_NAMES and len(parts) == 1
        if may_be_keras and not get_close_matches(name, known.names, 1, _MISSPELT):
            return  # a name such as mse, or a mistake: a worker looks it up
        raise _not_found(
            f"{file.name} has no {parts[-1]}, which {option} names",
            str(file),
            did_you_mean(parts[-1], known.names) or f"Correct {option}.",
        )


def _full_name(zoo: Path, option: str, name: str) -> str:
    """Return the name with the file in it, if it is one of a folder without ``__init__.py``."""
    places = places_of(zoo, name)
    if len(places) > 1:
        raise _not_found(
            f"{option} {name} is in several files: {', '.join(places)}",
            str(zoo),
            f"Name one: {option} {places[0]}",
        )
    return places[0] if places else name


def _file_of(zoo: Path, candidate: Candidate) -> Path | None:
    for name in candidate.files:
        if (zoo / name).is_file():
            return zoo / name
    return None


def _read(file: Path) -> Definitions:
    try:
        return definitions(file.read_text(encoding="utf-8-sig"), str(file))
    except SyntaxError as error:
        line = (error.text or "").rstrip()
        is_magic = line.lstrip().startswith(("!", "%"))
        raise EdlError(
            ErrorCode.MODEL_IMPORT,
            f"the model file is not valid Python: {error.msg}",
            where=f"{file}:{error.lineno}",
            remedy="Leave out lines with ! and %, which only notebooks understand; packages belong "
            "into requirements.txt."
            if is_magic
            else "Correct this line.",
            detail=line,
        ) from None
    except UnicodeDecodeError as error:
        raise EdlError(
            ErrorCode.MODEL_IMPORT,
            f"the model file is not UTF-8: it has the byte 0x{error.object[error.start]:02x}",
            where=f"{file}:{error.object[: error.start].count(10) + 1}",
            remedy="Save it as UTF-8.",
        ) from None
    except (OSError, ValueError) as error:
        raise EdlError(
            ErrorCode.MODEL_IMPORT,
            f"the model file cannot be read: {error}",
            where=str(file),
            remedy="Make it a readable UTF-8 text file.",
        ) from None


def _known_names(zoo: Path) -> list[str]:
    """Dotted names of the zoo's modules, and of what is in them."""
    found: list[str] = []
    for folder, subfolders, files in os.walk(zoo):
        subfolders[:] = sorted(
            name for name in subfolders if not name.startswith((".", "__")) and name.isidentifier()
        )
        for name in sorted(files):
            if not name.endswith(".py") or len(found) > _MANY:
                continue
            path = Path(folder) / name
            parts = list(path.relative_to(zoo).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            if parts:
                found.append(".".join(parts))
    return found


def _contents(zoo: Path) -> str:
    """Return a sentence that names some of the zoo's modules, for an error's remedy."""
    names = _known_names(zoo)
    if not names:
        if notebooks := sorted(zoo.glob("*.ipynb")):
            name = notebooks[0].name
            return f"{name} is a notebook; jupyter nbconvert --to script {name} makes a file of it."
        return "This folder has no model files; edl zoo init DIR creates an example."
    more = ", …" if len(names) > _LISTED else ""
    return f"This folder has: {', '.join(names[:_LISTED])}{more}"


def _not_found(what: str, where: str, remedy: str) -> EdlError:
    return EdlError(ErrorCode.MODEL_NOT_FOUND, what, where=where, remedy=remedy)
