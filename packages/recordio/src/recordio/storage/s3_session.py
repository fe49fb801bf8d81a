"""The HTTP session of S3's client, which refuses answers of servers other than the store."""

from __future__ import annotations

import inspect
from typing import Any

from aiobotocore.config import AioConfig  # type: ignore[import-untyped]  # no types
from aiobotocore.httpsession import AIOHTTPSession  # type: ignore[import-untyped]  # no types
from botocore.exceptions import HTTPClientError  # type: ignore[import-untyped]  # no types

from recordio.storage.foreign_answers import REDIRECTS, ForeignAnswer, refusal, refuse_page

_REGION = "x-amz-bucket-region"


class S3Session(AIOHTTPSession):  # type: ignore[misc]  # it has no types
    """A session that returns S3's own redirects, as the synchronous client's does.

    Such a redirect names the region of a bucket, for which the client signs a new request.
    """

    async def send(self, request: Any) -> Any:
        try:
            return await super().send(request)
        except HTTPClientError as error:
            # The client would repeat the request after an ``HTTPClientError``.
            foreign = error.kwargs.get("error")
            if isinstance(foreign, ForeignAnswer):
                raise foreign from None
            raise

    async def _get_session(self, proxy_url: Any) -> Any:
        return _WithoutRedirects(await super()._get_session(proxy_url))


class _WithoutRedirects:
    """The part of aiohttp's session that the client uses."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def request(self, *args: Any, **options: Any) -> Any:
        answer = await self._session.request(*args, allow_redirects=False, **options)
        if answer.status in REDIRECTS and _REGION not in answer.headers:
            answer.close()
            raise refusal(answer)
        refuse_page(answer)
        return answer


def s3_options(configured: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments for s3fs.

    Args:
        configured: the arguments that the user has set for s3fs.
    """
    if "http_session_cls" not in inspect.signature(AioConfig.__init__).parameters:
        return {}
    own = configured.get("config_kwargs", {})
    return {"config_kwargs": {"http_session_cls": S3Session, **own}}
