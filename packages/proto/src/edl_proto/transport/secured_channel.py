"""A channel with mutual TLS that survives the renewal of the caller's certificate.

gRPC takes a client's certificate when a channel is made. So this channel makes another one for the
first call after a renewal. Calls under way stay on the former channel, which is idle after them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc
from grpc.experimental import ChannelOptions

from edl_proto.identity.credentials import Material, Peer, channel_credentials

T = TypeVar("T")

Bound = tuple[grpc.Channel, T]
"""A channel, and what was made from it."""


class SecuredChannel(grpc.Channel):
    """A channel that replaces itself after a renewal.

    Args:
        address: ``host:port``.
        peer: the process that must be there.
        options: of gRPC.
    """

    def __init__(self, address: str, peer: Peer, options: Sequence[tuple[str, Any]]) -> None:
        self._address = address
        self._peer = peer
        self._options = (
            *options,
            ("grpc.ssl_target_name_override", peer.host),
            # With TLS, gRPC's other kind of stream hangs when Ctrl-C interrupts it.
            (ChannelOptions.SingleThreadedUnaryStream, 1),
        )
        self._lock = threading.Lock()
        self._material = peer.credentials.current()
        self._channels = [self._make(self._material)]
        self._is_closed = False

    def bind(self, make: Callable[[grpc.Channel], T], bound: Bound[T] | None = None) -> Bound[T]:
        """Make something from the channel for calls that begin now.

        It is made under the lock, because gRPC crashes if a method is made from a closed channel.

        Args:
            make: makes it.
            bound: what was made before; returned if it belongs to the same channel.

        Raises:
            ValueError: the channel is closed, as for calls.
        """
        material = self._peer.credentials.current()
        with self._lock:
            if self._is_closed:
                raise ValueError("Cannot invoke RPC on closed channel!")
            if material is not self._material:
                self._material = material
                self._channels.append(self._make(material))
            channel = self._channels[-1]
            return bound if bound and bound[0] is channel else (channel, make(channel))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for channel in self._channels:
                channel.close()

    def __enter__(self) -> SecuredChannel:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def subscribe(self, callback: Callable[..., None], try_to_connect: bool = False) -> None:
        self.bind(lambda channel: channel.subscribe(callback, try_to_connect))

    def unsubscribe(self, callback: Callable[..., None]) -> None:
        for channel in self._channels:
            channel.unsubscribe(callback)

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, lambda channel: channel.unary_unary(*args, **kwargs))

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, lambda channel: channel.unary_stream(*args, **kwargs))

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, lambda channel: channel.stream_unary(*args, **kwargs))

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return _Method(self, lambda channel: channel.stream_stream(*args, **kwargs))

    def _make(self, material: Material) -> grpc.Channel:
        return grpc.secure_channel(self._address, channel_credentials(material), self._options)


class _Method:
    """A method of whichever channel is the current one."""

    def __init__(self, owner: SecuredChannel, make: Callable[[grpc.Channel], Any]) -> None:
        self._owner = owner
        self._make = make
        self._bound: Bound[Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._current()(*args, **kwargs)

    def with_call(self, *args: Any, **kwargs: Any) -> Any:
        return self._current().with_call(*args, **kwargs)

    def future(self, *args: Any, **kwargs: Any) -> Any:
        return self._current().future(*args, **kwargs)

    def _current(self) -> Any:
        self._bound = bound = self._owner.bind(self._make, self._bound)
        return bound[1]
