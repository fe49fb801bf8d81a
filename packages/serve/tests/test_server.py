"""The HTTP server, with a model that needs no framework."""

from __future__ import annotations

import http.client
import json
import math
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any, ClassVar

import pytest
import uvicorn

from edl_proto.errors import EdlError, ErrorCode
from edl_serve.instances import EncodedInstances
from edl_serve.server import MAX_BODY_BYTES, build_app
from recordio import example
from recordio.description import DataDescription, DataField, Form

JSON = {"Content-Type": "application/json"}
PREDICT = "/v1/models/m:predict"


class Doubler:
    """A model that doubles x; minus one fails."""

    data = DataDescription(Form.EXAMPLES, (DataField("x", "float"), DataField("<b>", "bytes")))
    about: ClassVar[dict[str, Any]] = {"metrics": {"loss": math.nan}}
    version = 7

    def prepare(self) -> None: ...

    def predict(self, records: EncodedInstances) -> list[dict[str, Any]]:
        values = [float(example.decode(content)["x"][0]) for content in records.contents]
        if -1 in values:
            raise EdlError(ErrorCode.SHAPE_MISMATCH, "minus one", where="x", remedy="Send more.")
        return [{"prediction": [2 * value, math.inf]} for value in values]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    app = build_app(Doubler(), "m", ["127.0.0.1"])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def ask(
    port: int, method: str, path: str, body: bytes | None = None, headers: Any = None
) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()


def post(port: int, content: Any, headers: Any = None) -> tuple[int, Any]:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    status, answer = ask(port, "POST", PREDICT, body, JSON if headers is None else headers)
    return status, json.loads(answer)


def test_predictions_are_those_of_the_instances(port: int) -> None:
    status, answer = post(port, {"instances": [{"x": 1}, {"x": 2.5}]})
    assert (status, answer) == (200, {"predictions": [[2.0, None], [5.0, None]]})


def test_an_error_says_what_to_do(port: int) -> None:
    status, answer = post(port, {"instances": [{"x": -1}]})
    assert status == 422
    assert (answer["what"], answer["where"], answer["remedy"]) == ("minus one", "x", "Send more.")


def test_another_name_is_told_the_right_one(port: int) -> None:
    status, answer = ask(port, "POST", "/v1/models/other:predict", b"{}", JSON)
    assert status == 404
    assert "/v1/models/m:predict" in json.loads(answer)["remedy"]


@pytest.mark.parametrize(
    ("content", "headers", "what"),
    [
        (b"{", JSON, "no JSON"),
        (b"[" * 100_000, JSON, "no JSON"),
        ([], JSON, "no instances"),
        ({"inputs": []}, JSON, "no instances"),
        ({"instances": [{"y": 1}]}, JSON, "'y'"),
        ({"instances": [{"x": 1}] * 1025}, JSON, "more than 1024"),
        ({"instances": [{"x": 1}]}, {"Content-Type": "text/plain"}, "not said to be JSON"),
        (b" " * (MAX_BODY_BYTES + 1), JSON, "larger than"),
    ],
)
def test_bad_requests_are_refused(port: int, content: Any, headers: Any, what: str) -> None:
    status, answer = post(port, content, headers)
    assert status == 400
    assert what in answer["what"]
    assert answer["remedy"]


def test_the_model_is_described_as_in_tensorflow_serving(port: int) -> None:
    status, answer = ask(port, "GET", "/v1/models/m")
    assert status == 200
    assert json.loads(answer)["model_version_status"][0]["state"] == "AVAILABLE"
    _, answer = ask(port, "GET", "/v1/models/m/metadata")
    assert json.loads(answer)["metadata"]["metrics"] == {"loss": None}


def test_the_page_has_an_instance_to_begin_with_and_no_code_of_others(port: int) -> None:
    status, page = ask(port, "GET", "/")
    assert status == 200
    assert b"&quot;&lt;b&gt;&quot;" in page
    for file in ("page.js", "page.css"):
        assert ask(port, "GET", f"/static/{file}")[0] == 200
    assert ask(port, "GET", "/static/..%2Fcli.py")[0] == 404


def test_names_that_lead_here_from_elsewhere_are_refused(port: int) -> None:
    assert ask(port, "GET", "/", headers={"Host": "evil.example"})[0] == 400
