"""The description of a table's records that lies beside them, for models that ask for it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import recordio
from edl.adapters import model_zoo
from edl.core import schema
from edl.core.locations import scheme
from edl.core.model_file import takes_parameter
from edl.core.platforms import KUBERNETES
from edl.core.problem import usage
from edl.core.submission import Submission
from edl_proto.errors import EdlError, ErrorCode
from edl_proto.model import model_params

_PARAMETER = "schema"


def describe(job: Submission, zoo: Path) -> tuple[Submission, Path | None]:
    """Give a model that takes the parameter ``schema`` the description of its data.

    Args:
        zoo: the folder of the job's model files.

    Returns:
        The job, and the file with the description; None if the model takes none, or got one from
        the user, or if there is none.

    Raises:
        Problem: there are several descriptions.
        EdlError: DATA_UNREADABLE.
    """
    params = model_params.parse_params(job.params)
    # The paths of a job on Kubernetes are those of its pods.
    if _PARAMETER in params or job.platform == KUBERNETES.name:
        return job, None
    source, name = model_zoo.source_of(zoo, job.model_def)
    try:
        if not takes_parameter(source, name, _PARAMETER):
            return job, None
    except (SyntaxError, ValueError):
        return job, None  # the check of the model file says it better
    place = _beside(job.data)
    if place is None:
        return job, None
    params[_PARAMETER] = _read(place)
    return replace(job, params=model_params.format_params(params)), place


def _beside(patterns: Iterable[str]) -> Path | None:
    places = {_place(Path(file)) for pattern in patterns for file in _files(pattern)}
    if len(places) > 1:
        known = sorted(str(place) for place in places if place)
        raise usage(
            f"no {schema.FILE} describes all of --data",
            where=" and ".join(known[:2]),
            remedy="Convert all of it at once; or leave the descriptions aside:"
            f' --params "{_PARAMETER}=None"',
        )
    return next(iter(places), None)


def _place(file: Path) -> Path | None:
    """The description of a file, where a conversion writes it."""
    folder = file.parent
    found = [file.with_suffix(f".{schema.FILE}"), folder / schema.FILE]
    if folder.name in schema.PARTS:
        found.append(folder.parent / schema.FILE)
    return next((place for place in found if place.is_file()), None)


def _files(pattern: str) -> list[str]:
    """The files on this machine; none if something is wrong, which the check of the data says."""
    if scheme(pattern):
        return []
    try:
        return recordio.expand(pattern)
    except recordio.RecordError:
        return []


def _read(place: Path) -> object:
    try:
        found = json.loads(place.read_text("utf-8"))
        version = found["version"] if isinstance(found, dict) else None
        if version == schema.VERSION:
            return found
        reason = f"its version is {version!r}, and this is edl for version {schema.VERSION}"
    except (OSError, ValueError, KeyError) as error:
        reason = f"it is no such file: {error}"
    raise EdlError(
        ErrorCode.DATA_UNREADABLE,
        f"the description of the data cannot be read; {reason}",
        where=str(place),
        remedy=f'Convert the data again; or leave it aside: --params "{_PARAMETER}=None"',
    )
