"""The command ``edl``, also installed as ``elasticdl``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main() -> None:
    """Run the command line of this process."""
    name = os.path.basename(sys.argv[0])
    code = run(sys.argv[1:], name if name == "elasticdl" else "edl")
    # What is still buffered for a reader that has left must not fail at interpreter exit.
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run(args: Sequence[str], prog: str = "edl") -> int:
    """Carry out one command line and report errors; returns the exit code."""
    # What gRPC's own code says of connections that end would stand amid the display.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # Here and not above: completion and errors aside, nothing else is needed to parse.
    from edl.cli.root import command

    if f"_{prog.upper()}_COMPLETE" in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    try:
        answer = command().main(args=list(args), prog_name=prog, standalone_mode=False)
    except Exception as error:
        from edl.render.errors import show

        return show(error)
    return answer if isinstance(answer, int) else 0


if __name__ == "__main__":
    main()
