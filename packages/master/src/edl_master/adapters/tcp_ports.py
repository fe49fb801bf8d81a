"""Errors of TCP ports, as errors for users."""

from __future__ import annotations

import errno
import socket

from edl_proto.errors import EdlError, ErrorCode


def address_in_use(error: OSError, host: str, port: int, option: str) -> EdlError:
    """Return the error of a listener that could not be opened."""
    if error.errno == errno.EADDRINUSE:
        return EdlError(
            ErrorCode.PORT_IN_USE,
            f"port {port} on {host} is in use",
            where=f"{host}:{port}",
            remedy=f"Choose another port with {option}, or leave the option out for a free one.",
        )
    return EdlError(
        ErrorCode.USAGE,
        f"the master cannot listen on {host}:{port}: {error.strerror or error}",
        where=f"{host}:{port}",
        remedy="Choose an address of this machine, and a port that you may use.",
    )


def is_free(host: str, port: int) -> bool:
    """Return whether a listener could have this port now."""
    try:
        check_port(host, port, "")
    except EdlError:
        return False
    return True


def check_port(host: str, port: int, option: str) -> None:
    """Find out why a listener cannot have a port, or return if it can.

    Raises:
        EdlError: PORT_IN_USE, or USAGE for an address that this machine does not have.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise address_in_use(error, host, port, option) from error
