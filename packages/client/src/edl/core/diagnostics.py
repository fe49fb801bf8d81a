"""Results of the checks of ``edl doctor``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class DiagnosticGrade(StrEnum):
    """The grade of a finding: ``MISSING`` means that jobs cannot run here."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One checked property of the machine.

    Attributes:
        grade: MISSING keeps jobs from running; a NOTE only limits them.
        remedy: what to do about it, unless it is OK.
    """

    subject: str
    grade: DiagnosticGrade
    what: str
    remedy: str = ""


def is_fit(findings: Iterable[Diagnostic]) -> bool:
    """Return whether jobs can run."""
    return all(finding.grade is not DiagnosticGrade.MISSING for finding in findings)


def lines(findings: Iterable[Diagnostic]) -> list[str]:
    """Return all findings as lines of text, aligned; there must be at least one."""
    found = list(findings)
    width = max(len(finding.subject) for finding in found)
    text = []
    for finding in found:
        text.append(f"{finding.grade:<8}{finding.subject:<{width}}  {finding.what}")
        if finding.remedy:
            text.append(f"{'':<8}{'':<{width}}  what to do: {finding.remedy}")
    return text
