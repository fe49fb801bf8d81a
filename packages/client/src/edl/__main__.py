"""The command ``edl``, also installed as ``elasticdl``."""

from __future__ import annotations

# Nothing catches a Ctrl-C during these imports: only what Python itself has loaded already, or
# what takes no time.
import os
import sys

from edl.core.exit_numbers import INTERRUPTED, UNREAD, UNWRITABLE


def main() -> None:
    """Run the command line of this process."""
    try:
        _open_closed_streams()
        sys.unraisablehook = repeat_interrupt
        name = os.path.basename(sys.argv[0])
        code = run(sys.argv[1:], name if name == "elasticdl" else "edl")
    except KeyboardInterrupt:  # while modules were imported, before the command began
        code = INTERRUPTED
    # What is still buffered, for a reader that has left or a full disk, must not fail at
    # interpreter exit. That a warning cannot be written fails no command.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if stream is sys.stdout:
                code = code or (UNREAD if isinstance(error, BrokenPipeError) else UNWRITABLE)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open the standard streams that the caller has closed, as the null device."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Lower numbers are in use, so this is the stream's own: later files cannot get it.
            descriptor = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))


def repeat_interrupt(dropped: sys.UnraisableHookArgs) -> None:
    """Raise Ctrl-C again if it came in a finalizer or a callback, where Python drops exceptions."""
    if dropped.exc_type is KeyboardInterrupt:
        import threading

        threading.Thread(target=_interrupt_soon, name="repeat-interrupt").start()
    else:
        sys.__unraisablehook__(dropped)


def _interrupt_soon() -> None:
    """Interrupt the main thread when it has left the finalizer."""
    import signal
    import threading
    import time

    time.sleep(0.05)
    ident = threading.main_thread().ident
    assert ident is not None, "the main thread runs"
    signal.pthread_kill(ident, signal.SIGINT)


def run(args: list[str] | tuple[str, ...], prog: str = "edl") -> int:
    """Carry out one command line and report errors; returns the exit code."""
    from edl.cli.root import root

    stdout = sys.stdout
    try:
        answer = root.main(args=list(args), prog_name=prog, standalone_mode=False)
    except SystemExit:
        # click wraps the stream, and exits with 1, if the reader of the output has gone.
        if sys.stdout is not stdout:
            return UNREAD
        raise
    except Exception as error:
        from edl.render.errors import show

        return show(error)
    return answer if isinstance(answer, int) else 0


if __name__ == "__main__":
    main()
