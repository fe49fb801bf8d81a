"""``edl greet``."""

from __future__ import annotations

from edl.plugins.commands import (
    Format,
    command,
    errors_as_output,
    name_argument,
    output_option,
    print_result,
)
from edl.plugins.jobs import job_catalog


@command("greet", examples="edl greet my-job")
@name_argument
@output_option
def greet(name: str, output_format: Format | None) -> None:
    """Greet a job."""
    with errors_as_output(output_format):
        platform = job_catalog().find(name).platform
        text = f"Hello {name} on {platform}!"
        print_result({"greeting": text}, output_format, [text], [name])
