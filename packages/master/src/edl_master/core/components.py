"""The rooms of a job's heart, put together once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edl_master.core.effects import Effect
from edl_master.core.elasticity import Elasticity
from edl_master.core.evaluation import Evaluations
from edl_master.core.ledger import Ledger
from edl_master.core.outcome import Outcome
from edl_master.core.progress import Progress
from edl_master.core.settings import JobSettings, JobType
from edl_master.core.snapshot_schedule import Keeping
from edl_master.core.stall_detector import Hanging
from edl_master.core.tasks import Cut
from edl_master.core.worker_pool import Members
from edl_master.core.workflow import Course, course_of


@dataclass(frozen=True, slots=True)
class Rooms:
    """Everything that a job knows; ``emit`` takes the effects that the rooms decide on."""

    settings: JobSettings
    emit: Callable[[Effect], None]
    ledger: Ledger
    members: Members
    evaluations: Evaluations
    course: Course
    progress: Progress
    outcome: Outcome
    hanging: Hanging
    keeping: Keeping
    elasticity: Elasticity


def furnish(
    settings: JobSettings,
    data: tuple[int, ...],
    validation: tuple[int, ...],
    data_names: Sequence[str],
    validation_names: Sequence[str],
    emit: Callable[[Effect], None],
) -> Rooms:
    """Make the rooms of a new job; the arguments are those of ``JobState``."""
    main = Cut(data, settings.records_per_task, data_names)
    if settings.type is JobType.TRAIN:
        scored = Cut(validation, settings.records_per_task, validation_names)
    else:
        scored = main
    ledger = Ledger(settings.timings.lease_ttl_s)
    evaluations = Evaluations(ledger, scored, emit)
    return Rooms(
        settings=settings,
        emit=emit,
        ledger=ledger,
        members=Members(settings.min_workers, settings.max_workers, settings.timings, emit),
        evaluations=evaluations,
        course=course_of(settings, main, ledger, evaluations, emit),
        progress=Progress(settings.timings.rate_window_s),
        outcome=Outcome(emit),
        hanging=Hanging(settings.timings.patience),
        keeping=Keeping(settings.snapshot_every_s),
        elasticity=Elasticity(settings.min_workers, settings.max_workers, settings.elasticity),
    )
