"""Requests that are computed together."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from edl_proto.errors import EdlError, ErrorCode
from edl_serve.batching import Batcher
from edl_serve.instances import EncodedInstances


class Model:
    """Predicts the length of each record, once it may; remembers what it computed together."""

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []
        self.may_go_on = threading.Event()

    def predict(self, records: EncodedInstances) -> list[dict[str, Any]]:
        self.calls.append(list(records.contents))
        assert self.may_go_on.wait(60)
        if b"bad" in records.contents:
            raise EdlError(ErrorCode.USAGE, "bad")
        return [{"length": len(content)} for content in records.contents]


def run(model: Model, requests: list[EncodedInstances], most: int = 8) -> list[Any]:
    """Send a first request, the others while it is computed; return the answers or errors."""

    async def send() -> list[Any]:
        batcher = Batcher(model.predict, most)
        first = asyncio.create_task(batcher.predict(requests[0]))
        while not model.calls:
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(batcher.predict(request)) for request in requests[1:]]
        await asyncio.sleep(0)
        model.may_go_on.set()
        answers = await asyncio.gather(first, *others, return_exceptions=True)
        batcher.close()
        return answers

    return asyncio.run(send())


def test_requests_that_wait_are_computed_together() -> None:
    model = Model()
    answers = run(
        model,
        [EncodedInstances([b"a"]), EncodedInstances([b"bb", b"c"]), EncodedInstances([b"ddd"])],
    )
    assert answers == [[{"length": 1}], [{"length": 2}, {"length": 1}], [{"length": 3}]]
    assert model.calls == [[b"a"], [b"bb", b"c", b"ddd"]]


def test_no_more_instances_than_allowed_and_no_other_columns_are_computed_together() -> None:
    model = Model()
    rows = [
        EncodedInstances([b"1"], ("x",)),
        EncodedInstances([b"2"], ("y",)),
        EncodedInstances([b"3"], ("x",)),
    ]
    run(model, [EncodedInstances([b"a"]), *rows, EncodedInstances([b"4", b"5"], ("x",))], most=2)
    assert model.calls == [[b"a"], [b"1", b"3"], [b"2"], [b"4", b"5"]]


def test_a_wrong_request_fails_no_other() -> None:
    model = Model()
    answers = run(
        model, [EncodedInstances([b"a"]), EncodedInstances([b"bad"]), EncodedInstances([b"cc"])]
    )
    assert answers[2] == [{"length": 2}]
    with pytest.raises(EdlError, match="bad"):
        raise answers[1]
