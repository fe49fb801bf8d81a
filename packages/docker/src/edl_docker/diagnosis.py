"""Checks the container engine of this machine for ``edl doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edl.plugins.backends import Diagnostic, DiagnosticGrade
from edl_docker import container_engine
from edl_proto.errors import EdlError

_SUBJECT = "containers"


def examine(options: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Yield whether the engine answers that jobs of this machine would use."""
    try:
        url = container_engine.engine_url(options.get("engine", ""))
        container_engine.check_engine(url)
    except EdlError as error:
        what = f"{error.what} ({error.where}); --platform docker and edl zoo build need an engine"
        yield Diagnostic(_SUBJECT, DiagnosticGrade.NOTE, what, error.remedy)
    else:
        yield Diagnostic(_SUBJECT, DiagnosticGrade.OK, f"the engine at {url} answers")
