"""The dashboard of all jobs, for the operators of a platform."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard
from panels import JOBS, Panel, Query, add, choice, dashboard

INTERVAL = "[$__rate_interval]"
BY_JOB = "{{namespace}} {{edl_job}}"


def _increase(metric: str) -> list[Query]:
    """How much a counter has grown: the next master begins at zero, in series of its own."""
    grown = f"increase({metric}{{{JOBS}}}{INTERVAL})"
    return [Query(f"sum by (namespace, edl_job, instance) ({grown})", BY_JOB)]


def build() -> Dashboard:
    """The dashboard."""
    made = dashboard("edl fleet", "edl-fleet", "All jobs: states, throughput, failures, cost.")
    made = made.with_variable(
        choice("namespace", "Namespace", "label_values(edl_job_info, namespace)")
    )
    of_namespace = 'edl_job_info{namespace=~"$namespace"}'
    made = made.with_variable(choice("job", "Job", f"label_values({of_namespace}, edl_job)"))
    for row, panels in _ROWS.items():
        made = add(made, row, panels)
    return made


_ROWS = {
    "Jobs": [
        Panel(
            "Jobs by state",
            "Jobs whose masters run.",
            "none",
            [Query(f"sum by (state) (edl_job_state{{{JOBS}}}) > 0", "{{state}}")],
            stacked=True,
            of_jobs=False,
        ),
        Panel(
            "Progress",
            "Records done of each job's main work.",
            "percentunit",
            [Query(f"edl_job_progress_ratio{{{JOBS}}}", BY_JOB)],
        ),
        Panel(
            "Time left",
            "As expected from the present speed.",
            "s",
            [Query(f"edl_job_remaining_seconds{{{JOBS}}}", BY_JOB)],
        ),
        Panel(
            "Jobs",
            "Each job with its type and the address of its page.",
            "none",
            [Query(f"edl_job_info{{{JOBS}}}", BY_JOB)],
            "table",
            24,
        ),
    ],
    "Work": [
        Panel(
            "Throughput",
            "Records done per second.",
            "recps",
            [Query(f"edl_job_records_per_second{{{JOBS}}}", BY_JOB)],
            stacked=True,
        ),
        Panel(
            "Goodput",
            "Share of the wanted workers' time that trained, over five minutes.",
            "percentunit",
            [Query(f"edl:goodput:ratio5m{{{JOBS}}}", BY_JOB)],
        ),
        Panel(
            "Lost time by reason",
            "Worker seconds per second over all jobs.",
            "none",
            [
                Query(
                    f"sum by (reason) (rate(edl_worker_lost_seconds_total{{{JOBS}}}{INTERVAL}))",
                    "{{reason}}",
                )
            ],
            stacked=True,
            of_jobs=False,
        ),
    ],
    "Trouble": [
        Panel(
            "Crashes",
            "Workers that crashed in each interval.",
            "none",
            _increase("edl_worker_failures_total"),
        ),
        Panel(
            "Preemptions",
            "Workers that were taken away in each interval.",
            "none",
            _increase("edl_worker_preemptions_total"),
        ),
        Panel(
            "Dead letters",
            "Tasks that were set aside.",
            "none",
            [
                Query(
                    "sum by (namespace, edl_job, instance) "
                    f'(edl_tasks_total{{{JOBS},outcome="dead"}})',
                    BY_JOB,
                )
            ],
        ),
        Panel(
            "Oldest snapshots",
            "What the death of the master would cost, of the five worst jobs.",
            "s",
            [Query(f"topk(5, edl:snapshot_age_seconds{{{JOBS}}})", BY_JOB)],
        ),
        Panel(
            "Alerts",
            "Those that fire now.",
            "none",
            [Query('sum by (alertname, severity) (ALERTS{alertstate="firing"})', "{{alertname}}")],
            of_jobs=False,
        ),
        Panel(
            "Internal errors",
            "Calls per second that failed by a defect of edl.",
            "ops",
            [Query(f"rate(edl_internal_errors_total{{{JOBS}}}{INTERVAL})", BY_JOB)],
        ),
    ],
    "Resources": [
        Panel(
            "Workers",
            "That hold a task or wait for one.",
            "none",
            [
                Query(
                    "sum by (namespace, edl_job, instance) "
                    f'(edl_workers{{{JOBS},state=~"ready|working"}})',
                    BY_JOB,
                )
            ],
            stacked=True,
        ),
        Panel(
            "Processors",
            "In use, by role.",
            "none",
            [
                Query(
                    f"sum by (role) (rate(edl_process_cpu_seconds_total{{{JOBS}}}{INTERVAL}))",
                    "{{role}}",
                )
            ],
            stacked=True,
            of_jobs=False,
        ),
        Panel(
            "Memory",
            "In use, by role.",
            "bytes",
            [
                Query(
                    f"sum by (role) (edl_process_resident_memory_bytes{{{JOBS}}})",
                    "{{role}}",
                )
            ],
            stacked=True,
            of_jobs=False,
        ),
    ],
}
