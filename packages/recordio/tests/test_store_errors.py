"""Errors of stores are sentences with a remedy, and never names of exceptions."""

from __future__ import annotations

import re

import pytest

from recordio.errors import UnreadableFile
from recordio.storage.store_errors import is_transient, reason_of, remedy_of


def of(module: str, name: str, *above: type[Exception]) -> type[Exception]:
    """Return the type of an exception of a client that need not be installed."""
    return type(name, above or (Exception,), {"__module__": module})


class Answer(OSError):
    """An error of botocore, or of a client that translates it."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.response = {"Error": {"Code": code}}


def made_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


BOTO = "botocore.exceptions"
NO_BUCKET = made_from(FileNotFoundError("The bucket"), Answer("x", "NoSuchBucket"))


@pytest.mark.parametrize(
    ("error", "reason", "remedy"),
    [
        (FileNotFoundError("b/x"), "there is no such object or bucket", "the name of the bucket"),
        (NO_BUCKET, "there is no such bucket", "the name of the bucket"),
        (
            PermissionError("Access Denied."),
            "the store denies access: Access Denied",
            "have expired",
        ),
        (PermissionError(), "the store denies access", "have expired"),
        (OSError("Forbidden: b\nno"), "the store denies access: Forbidden no", "credentials"),
        (
            made_from(OSError(22, "Bad Request"), Answer("x", "400")),
            "the store refuses the request, as it does with expired credentials",
            "credentials",
        ),
        (Answer("Expired", "ExpiredToken"), "the store denies access: Expired", "credentials"),
        (
            of("google.auth.exceptions", "RefreshError")("invalid_grant"),
            "the store denies access: invalid_grant",
            "credentials",
        ),
        (
            of(BOTO, "NoCredentialsError")("Unable to locate credentials"),
            "no credentials for the store were found: Unable to locate credentials",
            "AWS_ACCESS_KEY_ID",
        ),
        (ConnectionResetError(104, "reset by peer"), "cannot be reached: reset by peer", "network"),
        (
            of(BOTO, "HTTPClientError")("An HTTP Client raised an unhandled exception: 400, bad"),
            "the store cannot be reached: 400, bad",
            "AWS_ENDPOINT_URL",
        ),
        (of("requests.exceptions", "RequestException")(), "the store failed", "later"),
        (OSError(16, "SlowDown"), "the store failed: SlowDown", "later"),
        (TimeoutError(), "the store does not answer in time", "later"),
        (ImportError("Install s3fs to access S3"), "Install s3fs to access S3", "package"),
        (ValueError("Protocol not known: x"), "Protocol not known: x", "Check the name"),
        (
            made_from(UnreadableFile("s3://b/x: no"), PermissionError("no")),
            "the store denies access: no",
            "credentials",
        ),
    ],
)
def test_an_error_is_a_sentence_with_a_remedy(error: Exception, reason: str, remedy: str) -> None:
    found = reason_of(error)
    assert found.endswith(reason)
    assert remedy in remedy_of(error)
    assert "\n" not in found
    assert not re.search(r"[a-z](Error|Exception)\b", found)


def test_what_is_known_of_nothing_but_its_name_is_told() -> None:
    assert reason_of(KeyError()) == "the client of the store failed with KeyError"


def test_an_expired_token_is_not_asked_about_again() -> None:
    assert not is_transient(Answer("Expired", "ExpiredToken"))
    assert is_transient(of("aiohttp.client_exceptions", "ClientError")("gone"))


def test_of_a_page_for_browsers_nothing_is_shown() -> None:
    reason = reason_of(PermissionError(f"Forbidden <html><body>{'<p>log in</p>' * 1000}"))
    assert reason == "the store denies access: Forbidden (a page for browsers)"


def test_long_words_of_a_store_are_cut() -> None:
    assert len(reason_of(OSError("x" * 1_000_000))) < 400
