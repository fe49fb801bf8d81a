"""Makes a port of a sandbox reachable on the loopback interface of this machine, or the reverse.

    python relay.py PID_IN_SANDBOX PORT_IN_SANDBOX FILE_FOR_THE_PORT [PORT_HERE]
    python relay.py --back PID_IN_SANDBOX PORT FILE_FOR_THE_PORT

A listening socket stays in the network namespace in which it was made. So the process listens here,
moves into the other namespace, and connects there. With ``--back``, it listens there, at every
address, and connects to the same port of this machine.
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
    enter(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY))


def enter(descriptor: int) -> None:
    """``os.setns`` of Python 3.12; closes the descriptor."""
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(descriptor)


def listening(port: int, address: str = "127.0.0.1") -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(512)
    return listener


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
    arguments = sys.argv[1:]
    back = arguments[0] == "--back"
    if back:
        del arguments[0]
    pid, port, port_file = int(arguments[0]), int(arguments[1]), Path(arguments[2])
    if back:
        here = os.open("/proc/self/ns/net", os.O_RDONLY)
        enter_network(pid)
        listener = listening(port, "0.0.0.0")
        enter(here)
    else:
        listener = listening(int(arguments[3]) if len(arguments) > 3 else 0)
        enter_network(pid)
    unfinished = port_file.with_suffix(".new")
    unfinished.write_text(str(listener.getsockname()[1]))
    unfinished.rename(port_file)
    asyncio.run(serve(listener, port))


if __name__ == "__main__":
    main()
