"""Requests that come at the same time are computed together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from edl_proto.errors import EdlError
from edl_serve.instances import EncodedInstances

Predict = Callable[[EncodedInstances], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class _Request:
    records: EncodedInstances
    answer: asyncio.Future[list[dict[str, Any]]]


class Batcher:
    """Computes requests in one thread, and those that wait for it together.

    A request that arrives while nothing is computed is computed at once. If requests fail together,
    each is computed alone, so that one with wrong instances fails no other.

    Args:
        predict: returns the predictions of records.
        most: instances that are computed together.
    """

    def __init__(self, predict: Predict, most: int) -> None:
        self._predict = predict
        self._most = most
        self._waiting: list[_Request] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="predict")
        self._running: asyncio.Task[None] | None = None

    async def predict(self, records: EncodedInstances) -> list[dict[str, Any]]:
        """Return the predictions of records, in their order.

        Raises:
            EdlError: as ``predict`` does.
        """
        request = _Request(records, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await request.answer

    def close(self) -> None:
        """End the thread when it has computed what it computes now."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            requests = self._take()
            answers = await loop.run_in_executor(self._thread, self._compute, requests)
            for request, answer in zip(requests, answers, strict=True):
                if request.answer.cancelled():  # its client is gone
                    continue
                if isinstance(answer, Exception):
                    request.answer.set_exception(answer)
                else:
                    request.answer.set_result(answer)

    def _take(self) -> list[_Request]:
        """Take the first request, and others with the same columns as long as there is room."""
        first, *others = self._waiting
        taken, room = [first], self._most - len(first.records.contents)
        for request in others:
            size = len(request.records.contents)
            if request.records.columns == first.records.columns and size <= room:
                taken.append(request)
                room -= size
        self._waiting = [request for request in self._waiting if request not in taken]
        return taken

    def _compute(self, requests: Sequence[_Request]) -> list[list[dict[str, Any]] | Exception]:
        contents = [content for request in requests for content in request.records.contents]
        try:
            found = self._predict(EncodedInstances(contents, requests[0].records.columns))
        except Exception as error:
            if len(requests) == 1 or not isinstance(error, EdlError):
                return [error] * len(requests)
            return [answer for request in requests for answer in self._compute([request])]
        answers: list[list[dict[str, Any]] | Exception] = []
        for request in requests:
            size = len(request.records.contents)
            answers.append(found[:size])
            found = found[size:]
        return answers
