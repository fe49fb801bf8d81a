"""The dashboard of one job, for its user."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import Dashboard
from panels import JOBS, Panel, Query, add, annotation, choice, dashboard

INTERVAL = "[$__rate_interval]"


def build() -> Dashboard:
    """The dashboard."""
    made = dashboard("edl job", "edl-job", "One job: how far, how fast, what failed, what it cost.")
    made = made.with_variable(
        choice("namespace", "Namespace", "label_values(edl_job_info, namespace)")
    )
    of_namespace = 'edl_job_info{namespace=~"$namespace"}'
    made = made.with_variable(
        choice("job", "Job", f"label_values({of_namespace}, edl_job)", several=False)
    )
    roles = f"label_values(edl_process_cpu_seconds_total{{{JOBS}}}, role)"
    made = made.with_variable(choice("role", "Role", roles))
    for name, expr, color in (
        (
            "Starts of the master",
            f"time() - edl_master_start_timestamp_seconds{{{JOBS}}} < 30",
            "red",
        ),
        ("Crashes of workers", f"increase(edl_worker_failures_total{{{JOBS}}}[30s]) > 0", "orange"),
        ("Preemptions", f"increase(edl_worker_preemptions_total{{{JOBS}}}[30s]) > 0", "purple"),
    ):
        made = made.annotation(annotation(name, expr, color))
    for row, panels in _ROWS.items():
        made = add(made, row, panels)
    return made


def _one(metric: str, legend: str) -> list[Query]:
    return [Query(f"{metric}{{{JOBS}}}", legend)]


def _rate(metric: str, legend: str) -> list[Query]:
    return [Query(f"rate({metric}{{{JOBS}}}{INTERVAL})", legend)]


def _increase(metric: str, legend: str, *by: str) -> list[Query]:
    """How much a counter has grown: the next master begins at zero, in series of its own."""
    labels = ", ".join(("edl_job", "instance", *by))
    return [Query(f"sum by ({labels}) (increase({metric}{{{JOBS}}}{INTERVAL}))", legend)]


def _quantiles(metric: str, by: str = "") -> list[Query]:
    labels = f"le, {by}" if by else "le"
    shown = f"{{{{{by}}}}} " if by else ""
    buckets = f"sum by ({labels}) (rate({metric}_bucket{{{JOBS}}}{INTERVAL}))"
    return [
        Query(f"histogram_quantile({share}, {buckets})", f"{shown}{name}")
        for share, name in ((0.5, "median"), (0.99, "99 %"))
    ]


_ROWS = {
    "Now": [
        Panel(
            "State",
            "The state that the job is in.",
            "none",
            [Query(f"edl_job_state{{{JOBS}}} == 1", "{{state}}")],
            "value",
            4,
        ),
        Panel(
            "Progress",
            "Records done of the job's main work.",
            "percentunit",
            _one("edl_job_progress_ratio", "{{edl_job}}"),
            "value",
            4,
        ),
        Panel(
            "Time left",
            "As expected from the present speed.",
            "s",
            _one("edl_job_remaining_seconds", "{{edl_job}}"),
            "value",
            4,
        ),
        Panel(
            "Epoch",
            "Present epoch, and how many there are.",
            "none",
            [*_one("edl_job_epoch", "epoch"), *_one("edl_job_epochs", "of")],
            "value",
            4,
        ),
        Panel(
            "Goodput",
            "Share of the wanted workers' time that trained the model.",
            "percentunit",
            _one("edl_goodput_ratio", "{{edl_job}}"),
            "value",
            4,
        ),
        Panel(
            "Dead letters",
            "Tasks that were set aside because they failed too often.",
            "none",
            [Query(f'sum(edl_tasks_total{{{JOBS},outcome="dead"}})', "tasks")],
            "value",
            4,
            of_jobs=False,
        ),
    ],
    "Learning": [
        Panel("Loss", "Smoothed training loss.", "none", _one("edl_loss", "loss")),
        Panel(
            "Metrics",
            "Of the last evaluation.",
            "none",
            _one("edl_evaluation_metric", "{{metric}}"),
        ),
        Panel(
            "Staleness",
            "Updates between the values that a gradient was computed from and those it met.",
            "none",
            _quantiles("edl_gradient_staleness"),
            of_jobs=False,
        ),
        Panel(
            "Rejected gradients",
            "Gradients per second that were not applied, by reason.",
            "ops",
            _rate("edl_gradients_rejected_total", "{{reason}}"),
        ),
        Panel(
            "Updates",
            "Minibatches applied per second.",
            "ops",
            _rate("edl_steps_total", "minibatches"),
        ),
        Panel(
            "Embedding rows",
            "Rows that training has made, by table.",
            "none",
            _one("edl_embedding_rows", "{{table}}"),
        ),
    ],
    "Speed": [
        Panel(
            "Records",
            "Records done per second, as the master measures it.",
            "recps",
            _one("edl_job_records_per_second", "records"),
        ),
        Panel(
            "Backlog of a stream",
            "Records that have come and are not trained; 0 for complete data.",
            "none",
            _one("edl_stream_records_waiting", "records"),
        ),
        Panel(
            "Time of a step by phase",
            "Mean over all workers: waiting for data, computing, waiting for exchanges.",
            "s",
            [
                Query(
                    "sum by (phase) (rate(edl_worker_step_duration_seconds_sum"
                    f"{{{JOBS}}}{INTERVAL})) / sum by (phase) "
                    f"(rate(edl_worker_step_duration_seconds_count{{{JOBS}}}{INTERVAL}))",
                    "{{phase}}",
                )
            ],
            stacked=True,
            of_jobs=False,
        ),
        Panel(
            "Time of computing",
            "Of one minibatch.",
            "s",
            _quantiles("edl_step_duration_seconds", "phase"),
            of_jobs=False,
        ),
        Panel(
            "Tasks",
            "Tasks that wait and tasks that workers hold.",
            "none",
            [
                Query(
                    f"sum by (type, state) (edl_tasks{{{JOBS}}}) > 0",
                    "{{type}} {{state}}",
                )
            ],
            of_jobs=False,
        ),
        Panel(
            "Leases beyond the first",
            "Tasks per second that were leased again.",
            "ops",
            [
                Query(
                    f'sum by (type) (rate(edl_tasks_total{{{JOBS},outcome="retried"}}{INTERVAL}))',
                    "{{type}}",
                )
            ],
            of_jobs=False,
        ),
        Panel(
            "Records computed again",
            "In each interval, after a loss; each still trains the model once per epoch.",
            "none",
            _increase("edl_records_replayed_total", "records"),
        ),
    ],
    "Workers": [
        Panel(
            "Workers by state",
            "Instances, by where they are in their life.",
            "none",
            [Query(f"edl_workers{{{JOBS}}} > 0", "{{state}}")],
            stacked=True,
        ),
        Panel(
            "Wanted workers",
            "Fewest and most workers that the job wants.",
            "none",
            _one("edl_workers_bound", "{{bound}}"),
        ),
        Panel(
            "Ends of workers",
            "In each interval, by how they ended: left and preempted are no failures.",
            "none",
            _increase("edl_worker_exits_total", "{{reason}}", "reason"),
        ),
        Panel(
            "Lost time",
            "Worker seconds per second that trained nothing, by reason.",
            "none",
            _rate("edl_worker_lost_seconds_total", "{{reason}}"),
            stacked=True,
        ),
        Panel(
            "Failures and preemptions",
            "Workers that crashed, and workers that were taken away, in each interval.",
            "none",
            [
                *_increase("edl_worker_failures_total", "crashes"),
                *_increase("edl_worker_preemptions_total", "preemptions"),
            ],
        ),
        Panel(
            "Start of the master",
            "A new value is a restart.",
            "dateTimeAsIso",
            [Query(f"edl_master_start_timestamp_seconds{{{JOBS}}} * 1000", "master")],
        ),
    ],
    "Parameters": [
        Panel(
            "Traffic of the master",
            "Parameters and gradients, where the master holds the values.",
            "Bps",
            _rate("edl_parameter_bytes_total", "{{direction}}"),
        ),
        Panel(
            "Requests",
            "Time to answer, waiting for a step permit included.",
            "s",
            _quantiles("edl_parameter_request_duration_seconds", "method"),
            of_jobs=False,
        ),
        Panel(
            "Traffic of parameter servers",
            "Of each server; they should be alike.",
            "Bps",
            _rate("edl_parameter_server_bytes_total", "{{server}} {{direction}}"),
        ),
        Panel(
            "Requests of parameter servers",
            "Mean time of an answer, of each server.",
            "s",
            [
                Query(
                    f"rate(edl_parameter_server_request_seconds_total{{{JOBS}}}{INTERVAL})"
                    f" / rate(edl_parameter_server_requests_total{{{JOBS}}}{INTERVAL})",
                    "{{server}}",
                )
            ],
        ),
        Panel(
            "Age of the last snapshot",
            "Work that the death of the master would cost.",
            "s",
            [Query(f"edl:snapshot_age_seconds{{{JOBS}}}", "snapshot")],
        ),
        Panel(
            "Time of snapshots and checkpoints",
            "Median of writing; copy holds the job up.",
            "s",
            [
                Query(
                    "histogram_quantile(0.5, sum by (le) (rate("
                    f"edl_snapshot_duration_seconds_bucket{{{JOBS}}}{INTERVAL})))",
                    "snapshot",
                ),
                Query(
                    "histogram_quantile(0.5, sum by (le, phase) (rate("
                    f"edl_checkpoint_duration_seconds_bucket{{{JOBS}}}{INTERVAL})))",
                    "checkpoint {{phase}}",
                ),
            ],
            of_jobs=False,
        ),
    ],
    "Resources": [
        Panel(
            "Processors",
            "Processors in use, by role.",
            "none",
            [
                Query(
                    f'rate(edl_process_cpu_seconds_total{{{JOBS},role=~"$role"}}{INTERVAL})',
                    "{{role}}",
                )
            ],
            stacked=True,
        ),
        Panel(
            "Memory",
            "Memory in use, by role.",
            "bytes",
            [Query(f'edl_process_resident_memory_bytes{{{JOBS},role=~"$role"}}', "{{role}}")],
            stacked=True,
        ),
        Panel(
            "Requests to Kubernetes",
            "To the API server, by verb and code; code 0: no answer.",
            "ops",
            _rate("edl_kubernetes_requests_total", "{{verb}} {{code}}"),
        ),
    ],
}
