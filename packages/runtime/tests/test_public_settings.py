"""Public settings are complete, and have no passwords."""

from __future__ import annotations

import time

import pytest

from edl_runtime.public_settings import public_settings, without_passwords


def test_settings_are_flat_and_have_no_passwords() -> None:
    settings = {
        "data": ["s3://key:secret@host/a", "b"],
        "training": {"num_epochs": 2, "optimizer": {"rate": 0.1}, "loss": "", "seed": None},
        "containers": {"environment": "TOKEN=secret"},
    }
    assert public_settings(settings, ("containers",)) == {
        "data": "s3://host/a, b",
        "training.num_epochs": "2",
        "training.optimizer.rate": "0.1",
    }


def test_the_strategy_of_training_is_in_the_words_of_its_option() -> None:
    assert public_settings({"training": {"update": "REPLICATED"}}, ()) == {
        "training.strategy": "allreduce"
    }
    assert public_settings({"training": {"update": "SYNC"}}, ()) == {
        "training.strategy": "parameter-server",
        "training.update": "SYNC",
    }
    assert public_settings({"type": "PREDICT", "training": None}, ()) == {"type": "PREDICT"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://u:hunter@host/x", "http://host/x"),
        ("http://u:hunt@hunter@host/x", "http://host/x"),
        ("http://u:hunt:er@hunter@host:80/x@y?q=a@b", "http://host:80/x@y?q=a@b"),
        ("HTTP://U:hunter@H/", "HTTP://H/"),
        ("//u:hunter@host/x", "//host/x"),
        ("a, //u:hunter@host/x", "a, //host/x"),
        ("u:hunter@host:5432/db", "host:5432/db"),
        ("u:hunt@hunter@host", "host"),
        ("redis://:hunter@host/0", "redis://host/0"),
        ("http://hunter@host/x", "http://host/x"),
        ("http://u:hunter@[::1]:80/a@b", "http://[::1]:80/a@b"),
        ("http://u%3A%40:hunter@host", "http://host"),
        ("http://u:hunter\\@host/x", "http://host/x"),
        ("http://u:hunter/ss@host/x", "http://host/x"),
        ("http://u:hunt/er@hunter@host/x@y", "http://host/x@y"),
        ("postgresql+psycopg://u:hunter#a?b@host/db", "postgresql+psycopg://host/db"),
        ("http://u:hunter?x@host/y", "http://host/y"),
        ("jdbc:postgresql://u:hunter@host/db", "jdbc:postgresql://host/db"),
        ("http://a/x,http://u:hunter@b/y", "http://a/x,http://b/y"),
        ("http://u:hunter@a/x,http://v:hunter@b/y", "http://a/x,http://b/y"),
        ("[{'uri': 'http://u:hunter@h/x', 'b': 'c@d'}]", "[{'uri': 'http://h/x', 'b': 'c@d'}]"),
        (
            "postgresql://host/db?user=u&password=hunter&x=1",
            "postgresql://host/db?user=u&password=***&x=1",
        ),
        (
            "https://host/a?X-Amz-Signature=hunter&x=1#access_token=hunter",
            "https://host/a?X-Amz-Signature=***&x=1#access_token=***",
        ),
        ("postgresql://u:1234@host/db", "postgresql://host/db"),
        ("postgresql://u:5432hunter@host:5432/db", "postgresql://host:5432/db"),
        ("postgresql://u:5432/hunter@host:5432/db", "postgresql://host:5432/db"),
        ("mysql://u:1?hunter@host/db", "mysql://host/db"),
        ("mysql://u:1#hun@ter@host/db", "mysql://host/db"),
        ("redis://:6379/hunter@host/0", "redis://host/0"),
        ("u:5432hunter@host/db", "host/db"),
        ("http://u:" + "hunter" * 500 + "@host/x", "http://host/x"),
    ],
)
def test_whatever_may_be_a_password_goes(text: str, shown: str) -> None:
    assert public_settings({"data": text}, ()) == {"data": shown}
    assert public_settings({"data": [text]}, ()) == {"data": shown}


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8080/a@b",
        "http://[::1]:8080/a@b:c@d",
        "http://host/a:b@c",
        "http://host?q=a:b@c",
        "http://host:80",
        "https://host:443/@scope/package",
        "git+https://host:443/org/repo@v1",
        "ssh://host:22/org/repo@v1",
        "s3://bucket//a@b",
        "s3://bucket/key@v1",
        "file:///home/me:x/a@b",
        "git@github.com:org/repo",
        "zoo:tag@sha256:" + "a" * 64,
        "registry:5000/zoo:tag@sha256:" + "a" * 64,
        "docker://zoo:tag@sha256:" + "a" * 64,
        "mode:auto",
        "12:30",
        "C:/x@y",
        "write to me@example.com",
    ],
)
def test_what_is_no_password_stays(text: str) -> None:
    assert public_settings({"data": text}, ()) == {"data": text}


def test_only_user_and_password_of_a_uri_go() -> None:
    text = "no http://u:p@host/x@y nor u@v nor u:5432p@host"
    assert without_passwords(text) == "no http://host/x@y nor u@v nor host"
    assert without_passwords(text, "***@") == "no http://***@host/x@y nor u@v nor ***@host"
    text = """{"a":"b@c", 'd':'e@f'} postgresql://host:5432/db, x@y"""
    assert without_passwords(text) == text


@pytest.mark.parametrize(
    "piece", ["://a:", "//", "a:", "@", "http://u:p@", "?token=", "://[", ":", "://a:1/", ",a:b"]
)
def test_no_text_takes_long(piece: str) -> None:
    before = time.process_time()
    without_passwords(piece * (65_536 // len(piece)))
    assert time.process_time() - before < 10
