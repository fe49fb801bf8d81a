"""The settings of a job as names and texts, for everyone who may see the job."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

_USER_INFO = re.compile(
    r"""
    # // alone only where a URI begins, not within a path.
    (?P<before> :// | (?<![^\s,;=("'<\[]) // )
    (?:
        # All up to the last @ of the authority: a password may have one. A digest follows a name.
        [^/?\#\s]{0,4096} @ (?! sha\d{3}:)
        # A password with one of / ? #: what follows the colon is no port.
        | [^/?\#\s:@\[]{0,256} : (?! \d{0,5} (?: [/?\#,;"')\s] | \Z ))
          [^\s@]{1,4096} @ (?! sha\d{3}:) (?: [^/?\#\s@]{0,256} @ )*
    )
    """,
    re.VERBOSE,
)
_LIKE_PORT = re.compile(
    r"""
    # A password that begins like a port and has / ? #. Only behind the port of a web server, or in
    # an address of git, an @ belongs to the path.
    (?<!http) (?<!https) (?<!ssh) (?P<before> :// )
    [^/?\#\s:@\[]{0,256} : \d{0,5} [/?\#] [^\s@,;"'<>]{0,4096} @ (?! sha\d{3}:)
    (?: [^/?\#\s@]{0,256} @ )*
    """,
    re.VERBOSE,
)
_BARE = re.compile(
    r"""
    # Of a word without a scheme.
    (?<! [^\s,;(<\[] )
    [^\s/:@=?\#"'(){}\[\],;]{1,256} : (?!/) [^\s/?\#"'{}]{0,4096} @ (?! sha\d{3}:)
    """,
    re.VERBOSE,
)
_WITHOUT_SCHEME = re.compile(r"\A[^\s/:@=?#]{1,256}:(?!/)[^\s/?#]{0,4096}@(?!sha\d{3}:)")
_QUERY = re.compile(
    r"(?i)(?P<before>[?&;#][\w.-]{0,40}(?:password|passwd|pwd|secret|token|signature|credentials?"
    r"|api_?key|access_?key(?:_?id)?|sig)=)[^&;#\s]+"
)


_UPDATE = "training.update"
_STRATEGIES = {"REPLICATED": "allreduce", "AUTO": "auto"}
"""By the values of edl.v1.UpdateMode that are no values of ``--update``."""


def public_settings(settings: Mapping[str, Any], left_out: Collection[str]) -> dict[str, str]:
    """Return settings by their dotted names, without empty ones and passwords of URIs.

    Args:
        settings: by name; a mapping among them is a group of settings.
        left_out: names of the outermost settings that are not public.
    """
    kept = {name: value for name, value in settings.items() if name not in left_out}
    found = {name: text for name, text in _flat(kept, "") if text}
    if _UPDATE in found:
        _name_strategy(found)
    return found


def _name_strategy(found: dict[str, str]) -> None:
    """Add the strategy of training as a user names it."""
    found["training.strategy"] = _STRATEGIES.get(found[_UPDATE], "parameter-server")
    if found[_UPDATE] in _STRATEGIES:
        del found[_UPDATE]


def without_passwords(text: str, mask: str = "") -> str:
    """Remove users, passwords and the secrets of queries from the URIs in a text.

    What may be a password goes, also where it makes no valid URI.

    Args:
        text: with any number of URIs, or none.
        mask: takes the place of user and password.
    """
    for pattern in (_LIKE_PORT, _USER_INFO):
        text = pattern.sub(lambda found: f"{found['before']}{mask}", text)
    text = _BARE.sub(lambda _: mask, text)
    return _QUERY.sub(r"\g<before>***", text)


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    match value:
        case Mapping():
            for key, item in value.items():
                yield from _flat(item, f"{name}.{key}" if name else str(key))
        case None:
            return
        case list() | tuple():
            yield name, ", ".join(_public_text(str(item)) for item in value)
        case _:
            yield name, _public_text(str(value))


def _public_text(text: str) -> str:
    return without_passwords(_WITHOUT_SCHEME.sub("", text))
