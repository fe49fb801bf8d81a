"""Options of the job's processes."""

from __future__ import annotations

from dataclasses import dataclass

from edl.core.options.option import TRAIN, Option, declare
from edl.core.options.value_types import Choice, Duration, Flag, Integer, Text, WorkerRange, Workers
from edl.core.platforms import DOCKER, PLATFORMS, PROCESSES


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The options that say how the job runs."""

    name: str = declare(
        Option(
            Text("NAME"),
            "Name of the job.",
            "digits",
            default_text="made from the model's name",
            per_run=True,
            spec="name",
        )
    )
    num_workers: WorkerRange = declare(
        Option(
            Workers(),
            "Number of workers; with MIN:MAX an autoscaler decides how many to run.",
            "1:4",
            default=WorkerRange(1, 1),
            spec="workers",
        )
    )
    gpus: str = declare(
        Option(
            Choice(("each", "shared", "none")),
            "GPUs of this machine: one for each worker, which is an error if there are some, but "
            "too few; or several workers share one; or training on processors.",
            "shared",
            default_text="each; with --platform docker, none",
            spec="gpus",
        )
    )
    task_attempts: int = declare(
        Option(
            Integer(1),
            "Number of times that a failing task is tried.",
            "5",
            default=3,
            spec="failures.task_attempts",
        )
    )
    allow_dead_letters: bool = declare(
        Option(
            Flag(),
            "Continue without the tasks that failed every attempt, and report them.",
            default=False,
            spec="failures.allow_dead_letters",
        )
    )
    allow_gaps: bool = declare(
        Option(
            Flag(),
            "Train on a topic of Kafka that lost records before they trained: continue after them, "
            "and report them.",
            default=False,
            verbs=TRAIN,
            spec="failures.allow_gaps",
        )
    )
    stall_timeout: float = declare(
        Option(
            Duration(),
            "Replace a worker that makes no progress for this long, even if its steps usually take "
            "much less.",
            "1h",
            default=0.0,
            default_text="20s for short steps, up to 15m for an evaluation task",
            spec="failures.stall_timeout_s",
        )
    )
    snapshot_interval: float = declare(
        Option(
            Duration(min_s=0.1),
            "Time between snapshots of the job; longer if writing one takes more than a twentieth "
            "of this time. A master that fails loses the work since the last snapshot, unless "
            "workers that train by all-reduce still hold it.",
            "30s",
            default=5.0,
            default_text="5s",
            spec="snapshot_interval_s",
        )
    )
    dashboard_port: int = declare(
        Option(
            Integer(0, 65535),
            "Port of the job's page.",
            "8080",
            default=0,
            default_text="any free port",
            spec="serving.dashboard_port",
        )
    )
    keep_page: float = declare(
        Option(
            Duration(),
            "How long the job's page stays after the end of the job.",
            "10m",
            default=0.0,
            default_text="0s",
            spec="serving.keep_page_s",
        )
    )
    save_page: bool = declare(
        Option(
            Flag(),
            "Save the page of a successful job as one file (about 160 kB) next to its output.",
            default=False,
            spec="serving.save_page",
        )
    )
    metrics_auth: str = declare(
        Option(
            Choice(("token", "none")),
            "Authentication of a metrics scraper: the token in the job's directory; or none, where "
            "network policies say who may scrape.",
            "none",
            default_text="none on Kubernetes, else token",
            protects_user=True,
            spec="serving.metrics_auth",
        )
    )
    platform: str = declare(
        Option(
            Choice(tuple(PLATFORMS)),
            "Run master and workers as processes or containers of this machine, or as pods of a "
            "Kubernetes cluster.",
            DOCKER,
            default=PROCESSES.name,
            spec="platform",
        )
    )
