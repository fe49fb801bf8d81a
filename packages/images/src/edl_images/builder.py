"""Reaches a builder of images: a service, or a builder of this machine, for one build."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from edl.plugins.images import BuilderEndpoint, BuildRequest
from edl_images import local_builder
from edl_images.builder_client import BuilderClient
from edl_images.zoo_archive import pack as pack


@contextmanager
def connect(
    request: BuildRequest, endpoint: BuilderEndpoint, say: Callable[[str], None]
) -> Iterator[BuilderClient]:
    """Return a context with a builder, which is started if it is one of this machine.

    Raises:
        EdlError: USAGE or BUILDER_UNAVAILABLE.
    """
    with ExitStack() as opened:
        address = endpoint.address
        if endpoint.is_local:
            address = opened.enter_context(local_builder.running(request, endpoint, say))
        yield opened.enter_context(BuilderClient(address, endpoint))
