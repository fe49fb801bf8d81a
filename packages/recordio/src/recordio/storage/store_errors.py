"""Explains errors of stores to users, without the names of a client's exceptions."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import Any

from recordio.errors import RecordError
from recordio.storage.foreign_answers import ForeignAnswer, RedirectRefused

_ACCESS = "Check the credentials, what they allow, and whether they have expired."
_NAME = "Check the name of the bucket and the rest of the URI."
_KEYS = (
    "Give credentials as the store's own tools expect them: AWS_ACCESS_KEY_ID and"
    " AWS_SECRET_ACCESS_KEY or ~/.aws for s3://, GOOGLE_APPLICATION_CREDENTIALS or gcloud auth"
    " application-default login for gs://."
)
_NETWORK = (
    "Check the network, and the endpoint if you have set one: AWS_ENDPOINT_URL,"
    " STORAGE_EMULATOR_HOST."
)
_PACKAGE = "Install the package of the store: s3fs for s3://, gcsfs for gs://."
_LATER = "Try again later."
_ANY = "Check the name and your access; s3:// needs the package s3fs, gs:// the package gcsfs."


def is_transient(error: Exception) -> bool:
    """Return whether a repeated request may succeed: after 429, 5xx, resets and timeouts."""
    if _name(type(error)) in _PERMANENT:
        return False
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNOS:
        return True
    return _is_one_of(error, _TRANSIENT) or _code(error) in _TRANSIENT_CODES


def reason_of(error: BaseException) -> str:
    """Return the reason for an error of a store's client: a sentence without a full stop."""
    return _explain(error)[0]


def remedy_of(error: BaseException) -> str:
    """Return what a user can do about an error of a store's client."""
    return _explain(error)[1]


def _explain(error: BaseException) -> tuple[str, str]:
    """Return the reason for an error, and a remedy."""
    if isinstance(error, RecordError) and error.__cause__ is not None:
        return _explain(error.__cause__)
    text = _text(error)
    code = next(filter(None, map(_code, _chain(error))), "")
    if isinstance(error, FileNotFoundError):
        what = "bucket" if code == "NoSuchBucket" else "object or bucket"
        return f"there is no such {what}", _NAME
    if code == _BARE_REFUSAL:
        return "the store refuses the request, as it does with expired credentials", _ACCESS
    if _is_refused(error, text, code):
        return _with("the store denies access", text), _ACCESS
    return _explain_failure(error, text)


def _explain_failure(error: BaseException, text: str) -> tuple[str, str]:
    """Return reason and remedy of an error that is not the store's answer to a request."""
    if _name(type(error)) in _PERMANENT:
        return "the object has changed since it was opened", _LATER
    if _name(type(error)) in _CREDENTIALS:
        return _with("no credentials for the store were found", text), _KEYS
    if isinstance(error, ImportError):
        return text, _PACKAGE
    if isinstance(error, RedirectRefused):
        return _with("the store cannot be reached", text), _NETWORK
    if isinstance(error, ForeignAnswer):
        return _with("what answers there is no store", text), _NETWORK
    if (text and isinstance(error, KeyError)) or _is_one_of(error, _NO_STORE):
        return "what answers there is no store", _NETWORK
    if isinstance(error, ConnectionError) or _is_one_of(error, _UNREACHABLE):
        return _with("the store cannot be reached", text), _NETWORK
    if isinstance(error, TimeoutError):
        return text or "the store does not answer in time", _LATER
    if isinstance(error, Exception) and is_transient(error):
        return _with("the store failed", text), _LATER
    return text or f"the client of the store failed with {type(error).__name__}", _ANY


def _with(what: str, text: str) -> str:
    return f"{what}: {text}" if text else what


def _is_refused(error: BaseException, text: str, code: str) -> bool:
    return (
        isinstance(error, PermissionError)
        or text.startswith("Forbidden")
        or code in _REFUSALS
        or _is_one_of(error, _REFUSAL_ERRORS)
    )


def _text(error: BaseException) -> str:
    """Return the message of an error in one line."""
    message = error.strerror if isinstance(error, OSError) and error.strerror else error
    text = " ".join(str(message)[:_MAX_READ].split())
    text = _NOISE.sub("", _PAGE.sub("(a page for browsers)", text)).strip("., ")
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__


def _code(error: BaseException) -> str:
    """Return the store's own code of an error; empty if there is none."""
    answer: Any = getattr(error, "response", None)
    if isinstance(answer, dict):
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
        return str(answer.get("Error", {}).get("Code", "") or status)
    return str(getattr(error, "code", None) or "")


def _is_one_of(error: BaseException, names: frozenset[str]) -> bool:
    return any(_name(kind) in names for kind in type(error).__mro__)


def _name(kind: type) -> str:
    """Return the name of a type of errors: those of clients, which may not be installed."""
    return f"{kind.__module__}.{kind.__qualname__}"


_MAX_SHOWN, _MAX_READ = 300, 100_000
"""The numbers of characters of a store's message that are shown, and that are read."""
_PAGE = re.compile(r"<(!doctype )?html\b.*", re.I)
_NO_STORE = frozenset(("botocore.parsers.ResponseParserError", "json.decoder.JSONDecodeError"))
_NOISE = re.compile(
    r"^An HTTP Client raised an unhandled exception: |(?<=^Forbidden): \S+"
    r"|^An error occurred \(\) when calling the \w+ operation:?"
)
_PERMANENT = frozenset(("s3fs.utils.FileExpired",))
_TRANSIENT = frozenset(
    (
        "aiohttp.client_exceptions.ClientError",
        "botocore.exceptions.ConnectionError",
        "botocore.exceptions.HTTPClientError",
        "botocore.exceptions.IncompleteReadError",
        "gcsfs.retry.ChecksumError",
        "google.auth.exceptions.TransportError",
        "requests.exceptions.RequestException",
    )
)
_UNREACHABLE = frozenset(
    (
        "aiohttp.client_exceptions.ClientConnectionError",
        "botocore.exceptions.ConnectionError",
        "botocore.exceptions.HTTPClientError",
        "google.auth.exceptions.TransportError",
        "requests.exceptions.ConnectionError",
    )
)
_CREDENTIALS = frozenset(
    (
        "botocore.exceptions.NoCredentialsError",
        "botocore.exceptions.PartialCredentialsError",
        "google.auth.exceptions.DefaultCredentialsError",
    )
)
_BARE_REFUSAL = "400"
"""The code of S3's answer to a HEAD request, which has no text."""

_REFUSAL_ERRORS = frozenset(("google.auth.exceptions.RefreshError",))
_REFUSALS = frozenset(("401", "403", "AccessDenied", "ExpiredToken", "InvalidToken"))
_TRANSIENT_CODES = frozenset(("408", "429", "500", "502", "503", "504"))
_TRANSIENT_ERRNOS = frozenset((errno.EBUSY, errno.EIO, errno.EREMOTEIO, errno.ETIMEDOUT))
