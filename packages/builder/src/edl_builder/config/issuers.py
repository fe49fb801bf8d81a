"""The issuers of identity tokens in the settings file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edl_builder.adapters.identity_tokens import ALGORITHMS, DEFAULT_ALGORITHMS, Issuer
from edl_builder.adapters.issuer_keys import KeySource
from edl_builder.config.values import check_section, wrong_setting
from edl_runtime.image_names import is_on_this_machine

_TEXTS = ("issuer", "audience", "jwks_url", "jwks_file", "ca_file", "bearer_token_file")


def read_issuers(section: Mapping[str, Any]) -> tuple[Issuer, ...]:
    """Read the issuers from the section ``issuers`` of the settings file.

    Raises:
        BuilderError: a setting is wrong; says which.
    """
    found = [_issuer(name, each, f"[issuers.{name}]") for name, each in section.items()]
    if len({issuer.issuer for issuer in found}) < len(found):
        raise wrong_setting("[issuers]", "two of them have the same issuer")
    return tuple(found)


def _issuer(name: str, each: Mapping[str, Any], where: str) -> Issuer:
    check_section(each, (*_TEXTS, "algorithms"), where)
    for setting, value in each.items():
        if setting != "algorithms" and (not isinstance(value, str) or not value):
            raise wrong_setting(where, f"{setting} is not a text")
    for setting in ("issuer", "audience"):
        if setting not in each:
            raise wrong_setting(where, f"{setting} is missing")
    return Issuer(
        name, each["issuer"], each["audience"], _keys(each, where), _algorithms(each, where)
    )


def _keys(each: Mapping[str, str], where: str) -> KeySource:
    url, file = each.get("jwks_url", ""), each.get("jwks_file", "")
    if bool(url) == bool(file):
        raise wrong_setting(where, "set either jwks_url or jwks_file")
    if url:
        _check_url(url, where)
    for setting in ("jwks_file", "ca_file", "bearer_token_file"):
        if setting in each and not Path(each[setting]).is_file():
            raise wrong_setting(where, f"{setting}: there is no file {each[setting]}")
    return KeySource(
        url,
        Path(file) if file else None,
        each.get("ca_file", ""),
        each.get("bearer_token_file", ""),
    )


def _check_url(url: str, where: str) -> None:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise wrong_setting(where, "jwks_url is not a URL") from None
    # Anyone who can answer in the issuer's place can sign tokens for every subject.
    is_safe = parts.scheme == "https" or (
        parts.scheme == "http" and is_on_this_machine(parts.netloc)
    )
    if not host or not is_safe or "@" in parts.netloc:
        raise wrong_setting(where, "jwks_url is not an https URL, or contains a password")


def _algorithms(each: Mapping[str, Any], where: str) -> tuple[str, ...]:
    found = each.get("algorithms", DEFAULT_ALGORITHMS)
    if not isinstance(found, list | tuple) or not found or set(found) - set(ALGORITHMS):
        raise wrong_setting(where, f"algorithms must be some of {', '.join(ALGORITHMS)}")
    return tuple(found)
