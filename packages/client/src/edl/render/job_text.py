"""Sentences and columns about jobs, for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from edl.core import quantities
from edl.core.exit_codes import present
from edl.core.job_result import UNREADABLE
from edl.core.job_status import (
    Failure,
    JobEvent,
    JobState,
    JobStatus,
    WorkerStatus,
    losses,
    overall_rate,
)
from edl.core.options import Verb
from edl.core.options.strategies import AUTO
from edl.render.table import table
from edl_proto.printable import clip, indent, one_line

_MAX_LENGTH = 1000  # characters of one line of an error
_DETAIL_LINES = 20  # an error stays on one screen
_FIRST_DEAD_LETTERS = 5


def progress_line(status: JobStatus) -> str:
    """Return one line on how far a job is: ``41 % of 60,000 records, 2,310/s, ETA 15 s, ...``."""
    parts = []
    if status.state is not JobState.RUNNING:
        parts.append(phase(status))
    if status.records_total:
        parts.append(
            f"{status.fraction:.0%} of {quantities.plural(status.records_total, 'record')}"
        )
    if status.state is JobState.RUNNING:
        parts.append(f"{quantities.rate(status.records_per_s)}/s")
        if status.eta_s >= 0:
            parts.append(f"ETA {quantities.duration(status.eta_s)}")
    if status.rounds:
        parts.append(status.rounds)
    parts.extend(describe_metrics(status))
    if not status.state.is_over:
        parts.append(workers_phrase(status))
    return one_line(", ".join(parts))


def phase(status: JobStatus) -> str:
    """Return what the job is doing, in a word or two."""
    if status.state is JobState.FINISHING:
        return "writing the model" if status.verb is Verb.TRAIN else "finishing"
    return status.state.words


def describe_metrics(status: JobStatus) -> list[str]:
    """Return loss and metrics as texts: ``loss 0.231``, ``val accuracy 0.93``."""
    training = status.verb is Verb.TRAIN
    found = []
    if not math.isnan(status.loss) and training:
        found.append(f"loss {quantities.number(status.loss)}")
    # The validation data may have a loss, too.
    whose = "val " if training else ""
    found.extend(
        f"{whose}{name} {quantities.number(value)}" for name, value in _sort_metrics(status.metrics)
    )
    return found


def _sort_metrics(metrics: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the metrics in the order of all texts: the loss, then the others by name."""
    plain = ((one_line(name), value) for name, value in metrics.items())
    return sorted(plain, key=lambda item: (item[0] != "loss", item[0]))


def workers_phrase(status: JobStatus) -> str:
    """Return ``2 workers``, or how many of the wanted ones there are."""
    wanted = status.workers_max
    if not wanted:
        return quantities.plural(status.at_work, "worker")
    if status.workers_min != wanted:
        now = quantities.plural(status.at_work, "worker")
        return f"{now} ({status.workers_min} to {wanted} wanted)"
    if status.at_work == wanted:
        return quantities.plural(wanted, "worker")
    return f"{status.at_work} of {quantities.plural(wanted, 'worker')}"


def summary(status: JobStatus, keep_page_s: float = 0.0, page_link: str = "") -> list[str]:
    """Return the result of a job: the work done, its speed, and problems on the way.

    Args:
        keep_page_s: how long the master serves its page after the end, in seconds.
        page_link: opens the page for as long.
    """
    done = status.records_trained if status.verb is Verb.TRAIN else status.records_done
    verb = {
        Verb.TRAIN: "trained on",
        Verb.EVALUATE: "evaluated on",
        Verb.PREDICT: "predicted",
    }[status.verb]
    seconds = quantities.duration(status.seconds)
    rate = quantities.rate(overall_rate(status))
    doing = {
        Verb.TRAIN: " while training",
        Verb.EVALUATE: " while evaluating",
        Verb.PREDICT: " while predicting",
    }[status.verb]
    when = doing if status.mean_records_per_s > 0 else ""
    result = (
        f": {verb} {quantities.plural(done, 'record')} in {seconds} ({rate} records/s{when})"
        if done
        else f" after {seconds}"
    )
    lines = [f"{status.job} {status.state.words}{result}"]
    if status.verb is Verb.TRAIN and done:
        epochs = ""
        if status.num_epochs:
            whole = status.state is JobState.SUCCEEDED
            word = "window" if status.is_stream else "epoch"
            reached = f"ended in {word} {status.epoch} of {status.num_epochs}"
            epochs = f", {quantities.plural(status.num_epochs, word) if whole else reached}"
        lines.append(f"  {quantities.plural(status.steps, 'step')}{epochs}")
    if made := examples(status):
        lines.append(f"  the input function made {made}")
    lines.extend(_problems(status))
    if status.goodput > 0:
        lines.append(f"  goodput {goodput(status)}")
    lines.extend(_dead_letters(status))
    lines.extend(f"  warning: {text}" for text in status.warnings)
    lines = [one_line(line) for line in lines]
    if status.dashboard_url:
        stays = (
            f"for {quantities.duration(keep_page_s)}"
            if keep_page_s > 0
            else f"closed; edl dashboard {status.job} serves it again"
        )
        lines.append(f"  page: {page_link or status.dashboard_url} ({stays})")
    return lines


def examples(status: JobStatus) -> str:
    """Return how many records became how many examples; empty if each record is an example."""
    if status.verb is Verb.PREDICT or status.examples == status.examples_of:
        return ""
    made, records = quantities.count(status.examples), quantities.count(status.examples_of)
    return f"{made} examples of {records} records"


def goodput(status: JobStatus) -> str:
    """Return how much of the workers' time trained, and where most of the rest went."""
    lost = losses(status)
    return f"{status.goodput:.0%}" + (f"; lost: {lost}" if lost else "")


def table_rows(status: JobStatus) -> str:
    """Return how many rows the embedding tables have; the largest three by name."""
    count = quantities.count
    largest = sorted(status.table_rows.items(), key=lambda item: -item[1])
    named = ", ".join(f"{name} {count(rows)}" for name, rows in largest[:3])
    if len(largest) <= 3:
        return f"{named} (embedding)"
    total = count(sum(status.table_rows.values()))
    return f"{total} of {len(largest)} embedding tables: {named}, …"


def outcome(status: JobStatus, wide: bool = False) -> list[tuple[str, str]]:
    """Return the results themselves, as names and values."""
    rows = [(name, quantities.number(value)) for name, value in _sort_metrics(status.metrics)]
    if status.verb is Verb.PREDICT:
        rows.append(("predictions", quantities.count(status.predictions)))
    if status.output and status.state is JobState.SUCCEEDED:
        rows.append(("output", one_line(status.output)))
    rows = [(one_line(name), value) for name, value in rows]
    if wide:
        rows = [
            ("job", status.job),
            ("state", status.state.words),
            *rows,
            ("records trained", quantities.count(status.records_trained)),
            ("examples", examples(status) or "one of each record"),
            ("steps", quantities.count(status.steps)),
            ("parameter version", quantities.count(status.version)),
            ("seconds", f"{status.seconds:.1f}"),
            ("goodput", f"{status.goodput:.0%}"),
            ("lost time", losses(status) or "none"),
            ("page", status.dashboard_url),
        ]
    return rows


def failure_lines(failure: Failure) -> list[str]:
    """Return an error on one screen: what, where, what to do, and the end of the detail."""
    title = present(failure.code).title
    what = indent(_clip_line(failure.what))
    lines = [f"{title}: {what}" if title else what]
    if failure.where:
        lines.append(f"  where: {indent(_clip_line(failure.where))}")
    if failure.remedy:
        lines.append(f"  what to do: {indent(_clip_line(failure.remedy))}")
    detail = failure.detail.rstrip().splitlines()
    if len(detail) > _DETAIL_LINES:
        lines.append(f"  | ... {len(detail) - _DETAIL_LINES} lines before these")
    lines.extend(f"  | {_clip_line(line)}" for line in detail[-_DETAIL_LINES:])
    return lines


def _clip_line(text: str) -> str:
    """Return a text that fits a screen: a file name may have thousands of characters."""
    return clip(text, _MAX_LENGTH)


def event_line(event: JobEvent) -> str:
    """Return ``12:01:07 warning TaskRetried: ...``, the time in UTC as the master wrote it."""
    clock = event.at.partition("T")[2][:8] or f"{event.at_s:8.1f}"
    severity = "" if event.severity in ("", "info") else f"{event.severity} "
    return one_line(_clip_line(f"{clock} {severity}{event.kind}: {event.message}"))


JOB_COLUMNS = ("NAME", "TYPE", "STATE", "DONE", "RECORDS/S", "WORKERS", "TIME")
JOB_COLUMNS_WIDE = (*JOB_COLUMNS, "STARTED", "OUTPUT", "PAGE")


def job_row(status: JobStatus, wide: bool = False) -> tuple[str, ...]:
    """Return the cells of one job in the table of ``edl list``; ``wide`` adds columns."""
    running = status.state is JobState.RUNNING
    row = (
        status.job,
        status.verb.value,
        status.state.words,
        f"{status.fraction:.0%}" if status.records_total else "-",
        quantities.rate(status.records_per_s) if running else "-",
        str(status.at_work) if not status.state.is_over else "-",
        quantities.duration(status.seconds) if status.seconds > 0 else "-",
    )
    if not wide:
        return row
    url = status.dashboard_url if not status.state.is_over else ""
    return (*row, status.started_at or "-", status.output or "-", url or "-")


def unreadable_row(name: str, wide: bool = False) -> tuple[str, ...]:
    """Return the cells of a job whose record cannot be read."""
    columns = JOB_COLUMNS_WIDE if wide else JOB_COLUMNS
    return (name, "-", UNREADABLE.lower(), *("-" for _ in columns[3:]))


_MAX_NUMBERS = 8
"""So many workers of one reason are named; the others are counted."""

WORKER_COLUMNS = ("WORKER", "STATE", "PID", "TASK", "RECORDS", "RECORDS/S", "RESTARTS", "HEARTBEAT")
_MAX_GPU_LENGTH = 13  # a UUID begins with eight characters that tell it from others
_MAX_EXIT_LENGTH = 60
"""Characters of how a worker ended: what a cluster says of a pod may be long."""


def worker_table(workers: Sequence[WorkerStatus]) -> list[str]:
    """Return the workers in ``edl status``, with the columns that at least one of them fills."""
    columns = dict(zip(WORKER_COLUMNS, zip(*map(worker_row, workers), strict=True), strict=True))
    for name, cells in (
        ("GPU", [_shorten(each.gpu, _MAX_GPU_LENGTH) for each in workers]),
        ("LAST EXIT", [_shorten(each.last_exit, _MAX_EXIT_LENGTH) for each in workers]),
    ):
        if any(cells):
            columns[name] = tuple(cell or "-" for cell in cells)
    return table(tuple(columns), zip(*columns.values(), strict=True))


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def worker_row(worker: WorkerStatus) -> tuple[str, ...]:
    """Return the cells of one worker in the table of ``edl status``."""
    heard = worker.heartbeat_age_s
    return (
        str(worker.id),
        worker.state,
        str(worker.pid) if worker.pid else "-",
        worker.task or "-",
        quantities.count(worker.records),
        quantities.rate(worker.records_per_s),
        str(worker.restarts),
        f"{quantities.duration(heard)} ago" if heard >= 0 else "-",
    )


def status_lines(status: JobStatus, page_link: str = "") -> list[str]:
    """Return a job on one screen.

    Args:
        page_link: opens the job's page; empty: the command that prints one is shown, as the bare
            address opens nothing by itself.
    """
    lines = [f"{status.job}  {status.state.words}", f"  {progress_line(status)}"]
    if status.pending:
        lines.append(f"  waiting: {status.pending}")
    if made := examples(status):
        lines.append(f"  the input function made {made}")
    if status.started_at:
        lines.append(f"  started {status.started_at}, {quantities.duration(status.seconds)}")
    lines.extend(_problems(status))
    lines.extend(_dead_letters(status))
    has_page = status.dashboard_url and not status.state.is_over
    rate = status.learning_rate
    facts = {
        "strategy": "" if status.strategy == AUTO else status.strategy,
        "rate": "" if rate is None else f"{rate:.6g}, the learning rate that was set",
        "goodput": goodput(status) if status.goodput > 0 else "",
        "rows": table_rows(status) if status.table_rows else "",
        "page": (page_link or f"edl dashboard {status.job}") if has_page else "",
        "output": status.output,
        "code": status.code and f"sha256 {status.code}",
    }
    width = 8 if facts["strategy"] else 7
    lines.extend(f"  {name:<{width}} {value}" for name, value in facts.items() if value)
    lines.extend(f"  warning: {text}" for text in status.warnings)
    if status.workers and not status.state.is_over:
        lines.append("")
        lines.extend(f"  {line}" for line in worker_table(status.workers))
    if not status.state.is_over:
        lines.extend(f"  {line}" for line in waits(status))
    return [one_line(line) for line in lines]


def _dead_letters(status: JobStatus) -> list[str]:
    """Return what a job goes on without, or has ended without; empty if there is nothing."""
    dead = max(status.dead_tasks, len(status.dead_letters))
    if not dead:
        return []
    first = status.dead_letters[:_FIRST_DEAD_LETTERS]
    lines = [f"  NOT done: {quantities.plural(dead, 'task')} failed in every attempt"]
    lines.extend(f"    {letter}" for letter in first)
    if dead > len(first):
        more = quantities.count(dead - len(first))
        has_all = dead == len(status.dead_letters)  # each is an event, too
        command = f"status {status.job} -o json" if has_all else f"events {status.job}"
        lines.append(f"    and {more} more: edl {command}")
    return lines


def _problems(status: JobStatus) -> list[str]:
    """Return what went wrong on the way, and was mended: at most one line."""
    server_restarts = max((server.restarts for server in status.servers), default=0)
    counts = [
        quantities.plural(count, what)
        for count, what in (
            (status.master_restarts, "master restart"),
            (server_restarts, "parameter server restart"),
            (status.preemptions, "preemption"),
            (status.worker_failures, "worker failure"),
        )
        if count
    ]
    if status.records_replayed:
        counts.append(f"{quantities.plural(status.records_replayed, 'record')} computed again")
    return [f"  problems: {', '.join(counts)}"] if counts else []


def waits(status: JobStatus) -> list[str]:
    """Return what workers and servers without a place wait for, a line for each reason.

    The reasons are in the platform's words.
    """
    workers = ((worker.pending, worker.id) for worker in status.workers)
    own = ((server.pending, server.id) for server in status.servers)
    return [*_waits("worker", workers), *_waits("parameter server", own)]


def _waits(role: str, pending: Iterable[tuple[str, int]]) -> list[str]:
    waiting: dict[str, list[int]] = {}
    for reason, number in pending:
        if reason:
            waiting.setdefault(reason, []).append(number)
    lines = []
    for reason, ids in waiting.items():
        first = ", ".join(str(number) for number in ids[:_MAX_NUMBERS])
        more = f" and {len(ids) - _MAX_NUMBERS} more" if len(ids) > _MAX_NUMBERS else ""
        some = f"{role} {first} is" if len(ids) == 1 else f"{role}s {first}{more} are"
        lines.append(f"{some} waiting to start: {reason}")
    return lines


def return_commands(name: str, *, in_notebook: bool = False) -> list[str]:
    """Return the commands for a job that continues without this command."""
    edl = "%edl" if in_notebook else "edl"
    attach = [f"  elasticdl.attach({name!r}).wait()    show it here again"] if in_notebook else []
    return [
        *attach,
        f"  {edl} status {name}     show its progress",
        f"  {edl} logs -f {name}    show its logs",
        f"  {edl} wait {name}       wait for its end",
        f"  {edl} stop {name}       stop it",
    ]
