"""Makes a port of a sandbox reachable on the loopback interface of this machine.

    python relay.py PID_IN_SANDBOX PORT_IN_SANDBOX FILE_FOR_THE_PORT [PORT_HERE]

A listening socket stays in the network namespace in which it was made. So the process listens here,
moves into the other namespace, and connects there.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
from pathlib import Path

CLONE_NEWNET = 0x40000000


def enter_network(pid: int) -> None:
    """``os.setns`` of Python 3.12."""
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(descriptor)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
        return
    writer.close()


async def serve(listener: socket.socket, port: int) -> None:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))
        inner_writer.close()
        writer.close()

    async with await asyncio.start_server(connect, sock=listener) as server:
        await server.serve_forever()


def main() -> None:
    pid, port, port_file = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(sys.argv[4]) if len(sys.argv) > 4 else 0))
    listener.listen(512)
    enter_network(pid)
    unfinished = port_file.with_suffix(".new")
    unfinished.write_text(str(listener.getsockname()[1]))
    unfinished.rename(port_file)
    asyncio.run(serve(listener, port))


if __name__ == "__main__":
    main()
