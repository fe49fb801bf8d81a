"""The example of a submitter calls a builder for several tenants, as one of them."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import grpc
import pytest
from certificates import make_ca, make_certificate
from service_bench import ANN, BOB, REPOSITORY, serving, settings

from edl_builder.config.access import Access, Token, hash_token
from edl_builder.config.tls import Tls

EXAMPLE = Path(__file__).parents[4] / "examples" / "sqlflow" / "submitter.py"
TOKENS = Access(tokens={hash_token("ann-token"): Token(ANN), hash_token("bob-token"): Token(BOB)})


def load_submitter(monkeypatch: pytest.MonkeyPatch, **environment: str) -> ModuleType:
    for name, value in {"DATABASE": "", "FOLDER": "", **environment}.items():
        monkeypatch.setenv(f"SQLFLOW_{name}", value)
    spec = importlib.util.spec_from_file_location("submitter", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("token", "refused"),
    [
        ("ann-token", None),
        ("bob-token", grpc.StatusCode.PERMISSION_DENIED),
        ("", grpc.StatusCode.UNAUTHENTICATED),
    ],
)
def test_the_example_builds_as_a_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str, refused: grpc.StatusCode | None
) -> None:
    ca = make_ca(tmp_path / "ca")
    own = make_certificate(ca, tmp_path, "localhost")
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    (zoo / "m.py").write_text("x = 1\n")
    config = replace(
        settings(tmp_path / "s"), access=TOKENS, tls=Tls(own.certificate, own.key), host="localhost"
    )
    with serving(config) as bench:
        submitter = load_submitter(
            monkeypatch,
            MODEL_ZOO=str(zoo),
            BUILDER=bench.app.address,
            BUILDER_CA=str(ca.certificate),
            BUILDER_TOKEN=token,
            REPOSITORY=REPOSITORY,
        )
        if refused is None:
            assert submitter.build_image(submitter.BUILDER).startswith(f"{REPOSITORY}@sha256:")
            return
        with pytest.raises(grpc.RpcError) as caught:
            submitter.build_image(submitter.BUILDER)
        assert caught.value.code() is refused
