"""``edl resume`` and ``edl export``."""

from __future__ import annotations

import click

from edl import codec
from edl.app import job_catalog, model_zoos
from edl.cli.cluster_flags import finds_jobs
from edl.cli.commands import command, option
from edl.cli.output import (
    errors_as_output,
    name_argument,
    output_option,
    print_result,
    quiet_option,
)
from edl.cli.submit import finish, follow, make_display, print_detached
from edl.core.job_result import of_status
from edl.core.model_code import JOB_CODE, NEW_CODE
from edl.ports.job_backend import silent
from edl.render import terminal
from edl.render.errors import show
from edl.render.output_format import Format
from edl.use_cases.job_catalog import JobCatalog
from edl.use_cases.job_resumption import resume_job
from edl.use_cases.model_export import export_model


@command(
    "resume",
    examples="edl resume my-job\nedl resume my-job --num-epochs 20 --detach\n"
    "edl resume my-job --code new",
)
@name_argument
@option(
    "--num-epochs",
    "--epochs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Train until N epochs are done, more than before; also after success, with checkpoints.",
)
@option("--detach", "-d", is_flag=True, help="Return when the job runs; do not watch it.")
@option(
    "--code",
    type=click.Choice((JOB_CODE, NEW_CODE)),
    help="If the model files have changed: continue with the code of the job, or with the files"
    " as they are now. Without it, changed files are an error.",
)
@quiet_option
@output_option
@finds_jobs
def resume(
    name: str,
    num_epochs: int | None,
    detach: bool,
    code: str | None,
    quiet: bool,
    output_format: Format | None,
) -> None:
    """Continue a job that was stopped, has failed or was lost, from its last snapshot.

    On Kubernetes, only a job that was stopped with edl stop --now, or before it began.
    """
    with errors_as_output(output_format):
        catalog = job_catalog()
        backend = catalog.find(name)
        say = silent if quiet else terminal.message
        resumed = resume_job(
            backend, model_zoos(), name, say, num_epochs=num_epochs, code=code or ""
        )
        report = backend.status(name, ask=False)
        url = report.dashboard_url or report.status.dashboard_url
        if not quiet:
            how = "resumed" if resumed else "runs already; watching it"
            page = report.page_link() or url or f"edl dashboard {name}"
            terminal.message(f"{name} {how}, page: {page}")
        if detach:
            print_detached(catalog, name, url, output_format, quiet=quiet)
            return
    status = follow(backend, name, make_display(quiet), output_format)
    finish(backend, status, output_format, quiet=quiet, keep_page_s=report.keep_page_s)


@command("export", examples="edl export my-job --output so_far\nedl export my-job --overwrite")
@name_argument
@option(
    "--output", default="", metavar="DIR", help="Where to write it. Default: the output of the job."
)
@option("--overwrite", is_flag=True, help="Replace a model that the same job has written there.")
@quiet_option
@output_option
@finds_jobs
def export(
    name: str, output: str, overwrite: bool, quiet: bool, output_format: Format | None
) -> None:
    """Write the model of a job as it is in its newest snapshot. The job itself is not changed."""
    with errors_as_output(output_format):
        write_model(job_catalog(), name, output, output_format, overwrite=overwrite, quiet=quiet)


def write_model(
    catalog: JobCatalog,
    name: str,
    output: str,
    form: Format | None,
    *,
    overwrite: bool = False,
    quiet: bool,
) -> None:
    """Write the model of a job and print where it is; exit with the code of a failure."""
    display = make_display(quiet)
    try:
        status = export_model(catalog, name, output, display, overwrite=overwrite)
    finally:
        display.close()
    if not quiet and status.failure is None:
        lines = [f"the model of {name}, parameter version {status.version}, is in {status.output}"]
        lines += [f"  warning: {text}" for text in status.warnings]
        terminal.message("\n".join(lines))
    print_result(of_status(status).to_dict(), form, [status.output], [name])
    if status.failure is not None:
        raise click.exceptions.Exit(show(codec.error_of(status.failure)))
