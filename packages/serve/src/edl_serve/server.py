"""The HTTP server: the REST API of TensorFlow Serving, and a page to try a model on."""

from __future__ import annotations

import html
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from edl_proto.errors import EdlError, ErrorCode
from edl_serve.batching import Batcher
from edl_serve.instances import encode_instances, example_instance, find_lacking
from edl_serve.served_model import Predictor, unpack

MAX_BODY_BYTES = 64 << 20
MAX_INSTANCES = 1024
"""Instances that are computed together, and in one request."""

_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; script-src 'self'; "
    "style-src 'self'",
    "X-Content-Type-Options": "nosniff",
}


def build_app(model: Predictor, name: str, hosts: list[str]) -> Starlette:
    """Return an ASGI application that answers for a model.

    Args:
        model: to predict with.
        name: of the model in addresses.
        hosts: names by which it may be addressed; ``*`` stands for any.
    """
    api = _Api(model, name)
    path = f"/v1/models/{name}"
    return Starlette(
        routes=[
            Route("/", api.show_page),
            Route("/static/{file}", _answer_asset),
            Route(f"{path}:predict", api.predict, methods=["POST"]),
            Route(f"{path}/metadata", api.describe),
            Route(path, api.show_status),
            Route("/v1/models/{rest:path}", api.refuse_name, methods=["GET", "POST"]),
        ],
        # A page of the web whose name leads to this machine must not use the model.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)],
        lifespan=api.run,
    )


class _Api:
    """The answers about one model."""

    def __init__(self, model: Predictor, name: str) -> None:
        self._model, self._name = model, name
        self._batcher = Batcher(model.predict, MAX_INSTANCES)

    @asynccontextmanager
    async def run(self, _: Starlette) -> AsyncIterator[None]:
        yield
        self._batcher.close()

    async def predict(self, request: Request) -> Response:
        try:
            records = encode_instances(_instances(await _read(request)), self._model.data)
            if len(records.contents) > MAX_INSTANCES:
                raise _usage(f"there are more than {MAX_INSTANCES} instances", "Send fewer.")
        except EdlError as error:
            return _refuse(error)
        try:
            found = await self._batcher.predict(records)
        except EdlError as error:
            if lacking := find_lacking(records, self._model.data):
                error.remedy = (
                    f"The instances lack {', '.join(lacking)}, which the training data had. Send "
                    "them, too; null is an empty cell."
                )
            return _refuse(error)
        return _JsonAnswer({"predictions": list(map(unpack, found))})

    async def show_status(self, _: Request) -> Response:
        state = {"version": str(self._model.version), "state": "AVAILABLE"}
        fine = {"error_code": "OK", "error_message": ""}
        return JSONResponse({"model_version_status": [{**state, "status": fine}]})

    async def refuse_name(self, _: Request) -> Response:
        remedy = f"Use /v1/models/{self._name}:predict; --name of edl serve sets another name."
        error = _usage(f"this server has the model {self._name} alone", remedy)
        return _refuse(error, status=404)

    async def describe(self, _: Request) -> Response:
        data = self._model.data.as_json() if self._model.data is not None else None
        facts = {**self._model.about, "data": data}
        spec = {"name": self._name, "version": str(self._model.version)}
        return _JsonAnswer({"model_spec": spec, "metadata": facts})

    async def show_page(self, _: Request) -> Response:
        body = json.dumps({"instances": [example_instance(self._model.data)]}, indent=2)
        text = _asset("page.html").decode()
        path = f"/v1/models/{self._name}:predict"
        for key, value in {"NAME": self._name, "BODY": body, "PATH": path}.items():
            text = text.replace("{{" + key + "}}", html.escape(value))
        return HTMLResponse(text, headers=_PAGE_HEADERS)


async def _answer_asset(request: Request) -> Response:
    kinds = {"page.js": "text/javascript", "page.css": "text/css"}
    file = request.path_params["file"]
    if file not in kinds:
        return Response(status_code=404)
    return Response(_asset(file), media_type=kinds[file], headers=_PAGE_HEADERS)


class _JsonAnswer(JSONResponse):
    """Numbers that JSON lacks become null."""

    def render(self, content: Any) -> bytes:
        return super().render(_finite(content))


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case bytes():
            return value.decode(errors="replace")
        case list():
            return [_finite(one) for one in value]
        case dict():
            return {name: _finite(one) for name, one in value.items()}
    return value


async def _read(request: Request) -> bytes:
    # Other types may be sent by pages of the web without asking.
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise _usage(
            "the content is not said to be JSON", "Send the header Content-Type: application/json."
        )
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise _usage(f"the request is larger than {MAX_BODY_BYTES >> 20} MiB", "Send less.")
    return body


def _instances(body: bytes) -> Any:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _usage(f"the request is no JSON: {error}", _FORM) from None
    if not isinstance(content, dict) or "instances" not in content:
        raise _usage("the request has no instances", _FORM)
    return content["instances"]


_FORM = 'Send {"instances": [{…}, …]}.'


def _usage(what: str, remedy: str) -> EdlError:
    return EdlError(ErrorCode.USAGE, what, where="request", remedy=remedy)


def _refuse(error: EdlError, status: int = 0) -> Response:
    parts = {"what": error.what, "where": error.where, "remedy": error.remedy}
    code = 400 if error.code in (ErrorCode.USAGE, ErrorCode.DATA_DAMAGED) else 422
    return JSONResponse({"error": str(error), **parts}, status_code=status or code)


def _asset(file: str) -> bytes:
    return resources.files("edl_serve").joinpath("static", file).read_bytes()
