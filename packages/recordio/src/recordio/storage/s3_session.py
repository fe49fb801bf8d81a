"""The HTTP session of the client of S3, which takes no other server's answer for the store's."""

from __future__ import annotations

import inspect
from typing import Any

from aiobotocore.config import AioConfig  # type: ignore[import-untyped]  # no types
from aiobotocore.httpsession import AIOHTTPSession  # type: ignore[import-untyped]  # no types
from botocore.exceptions import HTTPClientError  # type: ignore[import-untyped]  # no types

from recordio.storage.foreign_answers import REDIRECTS, ForeignAnswer, refusal, refuse_page

_REGION = "x-amz-bucket-region"


class S3Session(AIOHTTPSession):  # type: ignore[misc]  # it has no types
    """As the synchronous client's session: S3's own redirect is an answer, which the client reads.

    It names the region of a bucket, and the client signs a new request for this region.
    """

    async def send(self, request: Any) -> Any:
        try:
            return await super().send(request)
        except HTTPClientError as error:
            # In this disguise, it would be asked for again and again.
            foreign = error.kwargs.get("error")
            if isinstance(foreign, ForeignAnswer):
                raise foreign from None
            raise

    async def _get_session(self, proxy_url: Any) -> Any:
        return _WithoutRedirects(await super()._get_session(proxy_url))


class _WithoutRedirects:
    """A session of aiohttp, as far as it is used here."""

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
    """Arguments for s3fs.

    Args:
        configured: those that the user has set for s3fs.
    """
    if "http_session_cls" not in inspect.signature(AioConfig.__init__).parameters:
        return {}
    own = configured.get("config_kwargs", {})
    return {"config_kwargs": {"http_session_cls": S3Session, **own}}
