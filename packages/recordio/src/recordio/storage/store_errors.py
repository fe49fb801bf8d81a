"""What goes wrong with stores, in words for people: never the names of a client's exceptions."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import Any

from recordio.errors import RecordError
from recordio.storage.foreign_answers import ForeignAnswer, RedirectRefused

_ACCESS = "Check the credentials, what they allow, and whether they have expired."
_NAME = "Check the name of the bucket and the rest of the place."
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
    """Whether a store may answer when it is asked again: 429, 5xx, resets, timeouts."""
    if _name(type(error)) in _LASTING:
        return False
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNOS:
        return True
    return _is_one_of(error, _TRANSIENT) or _code(error) in _TRANSIENT_CODES


def reason_of(error: BaseException) -> str:
    """What a store's client says, as a sentence without a full stop."""
    return _explained(error)[0]


def remedy_of(error: BaseException) -> str:
    """What a person can do about it."""
    return _explained(error)[1]


def _explained(error: BaseException) -> tuple[str, str]:
    """Reason and remedy."""
    if isinstance(error, RecordError) and error.__cause__ is not None:
        return _explained(error.__cause__)
    text = _text(error)
    code = next(filter(None, map(_code, _chain(error))), "")
    if isinstance(error, FileNotFoundError):
        what = "bucket" if code == "NoSuchBucket" else "object or bucket"
        return f"there is no such {what}", _NAME
    if code == _BARE:
        return "the store refuses the request, as it does with expired credentials", _ACCESS
    if _is_refused(error, text, code):
        return _with("the store denies access", text), _ACCESS
    return _of_surroundings(error, text)


def _of_surroundings(error: BaseException, text: str) -> tuple[str, str]:
    """Reason and remedy of an error that is no answer to a request."""
    if _name(type(error)) in _LASTING:
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
    if isinstance(error, ConnectionError) or _is_one_of(error, _UNREACHED):
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
        or _is_one_of(error, _REFUSED)
    )


def _text(error: BaseException) -> str:
    """What an error says, in one line."""
    message = error.strerror if isinstance(error, OSError) and error.strerror else error
    text = " ".join(str(message)[:_READ].split())
    text = _NOISE.sub("", _PAGE.sub("(a page for browsers)", text)).strip("., ")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it was made from."""
    while error is not None:
        yield error
        error = error.__cause__


def _code(error: BaseException) -> str:
    """The store's own name or number of an error; empty without one."""
    answer: Any = getattr(error, "response", None)
    if isinstance(answer, dict):
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
        return str(answer.get("Error", {}).get("Code", "") or status)
    return str(getattr(error, "code", None) or "")


def _is_one_of(error: BaseException, names: frozenset[str]) -> bool:
    return any(_name(kind) in names for kind in type(error).__mro__)


def _name(kind: type) -> str:
    """Clients are optional, so their errors are known by name."""
    return f"{kind.__module__}.{kind.__qualname__}"


_LONGEST, _READ = 300, 100_000
"""Characters of a store's own words: that are shown, and that are looked at."""
_PAGE = re.compile(r"<(!doctype )?html\b.*", re.I)
_NO_STORE = frozenset(("botocore.parsers.ResponseParserError", "json.decoder.JSONDecodeError"))
_NOISE = re.compile(
    r"^An HTTP Client raised an unhandled exception: |(?<=^Forbidden): \S+"
    r"|^An error occurred \(\) when calling the \w+ operation:?"
)
_LASTING = frozenset(("s3fs.utils.FileExpired",))
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
_UNREACHED = frozenset(
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
_BARE = "400"
"""Of S3, where the question was for the head of an object: such an answer has no text."""

_REFUSED = frozenset(("google.auth.exceptions.RefreshError",))
_REFUSALS = frozenset(("401", "403", "AccessDenied", "ExpiredToken", "InvalidToken"))
_TRANSIENT_CODES = frozenset(("408", "429", "500", "502", "503", "504"))
_TRANSIENT_ERRNOS = frozenset((errno.EBUSY, errno.EIO, errno.EREMOTEIO, errno.ETIMEDOUT))
