"""The declaration of one option, and how groups declare their options."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from edl.core.options.value_types import Kind


class Verb(StrEnum):
    """The kinds of jobs, by what they do."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    PREDICT = "predict"


ALL = frozenset(Verb)
TRAIN = frozenset((Verb.TRAIN,))
PREDICT = frozenset((Verb.PREDICT,))
TRAIN_OR_EVALUATE = frozenset((Verb.TRAIN, Verb.EVALUATE))
TRAIN_OR_PREDICT = frozenset((Verb.TRAIN, Verb.PREDICT))
EVALUATE_OR_PREDICT = frozenset((Verb.EVALUATE, Verb.PREDICT))


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a job.

    The name is the Python name; the command line and settings files have dashes for underscores.

    Attributes:
        kind: reads and checks a value.
        help: one sentence for the command line and the documentation.
        example: a value as it is written on the command line; empty for a flag.
        default: the value if the option is not set, and in jobs of verbs without it.
        default_text: the default in words, if the default depends on something else.
        verbs: the commands that have the option.
        required: whether these commands need the option.
        is_path: a relative path starts from the folder of the settings file that contains it.
        may_be_in_a_store: the path may also be a URI such as gs://bucket/folder.
        per_run: the option can be set for a single run only, never in a file or a variable.
        protects_user: the user's own settings go before those of a project, which others may have
            written.
        short: a short name on the command line, such as ``-n``.
        spec: field of the ``JobSpec`` that carries the value, with dots; empty if only the client
            needs the value, or if the codec derives fields from it.
    """

    kind: Kind
    help: str
    example: str = ""
    default: Any = ""
    default_text: str = ""
    verbs: frozenset[Verb] = ALL
    required: bool = False
    is_path: bool = False
    may_be_in_a_store: bool = False
    per_run: bool = False
    protects_user: bool = False
    short: str = ""
    spec: str = ""
    name: str = ""
    section: str = ""

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return "--" + self.key

    @property
    def key(self) -> str:
        """The name in settings files."""
        return self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return "EDL_" + self.name.upper()

    @property
    def annotation(self) -> str:
        """The type in Python."""
        text = self.kind.annotation
        return text.replace("str", "PathOrUri") if self.is_path else text

    @property
    def shown_example(self) -> str:
        """The option with a value, as a user writes it on a command line."""
        is_quoted = self.example.startswith('"')
        needs_quotes = not is_quoted and set(self.example) & set(" ,*[")
        value = f'"{self.example}"' if needs_quotes else self.example
        return f"{self.flag} {value}".rstrip()

    @property
    def shown_default(self) -> str:
        """The default for a person; empty if there is none."""
        if self.default_text:
            return self.default_text
        if isinstance(self.default, bool):
            return "yes" if self.default else "no"
        return "" if self.default in ("", (), None) else str(self.default)


def declare(option: Option) -> Any:
    """Return the dataclass field of an option; the field's name is the option's name."""
    return dataclasses.field(default=option.default, metadata={"option": option})


def options_in(group: type, section: str) -> tuple[Option, ...]:
    """Return the options that a dataclass declares, in order."""
    return tuple(
        dataclasses.replace(field.metadata["option"], name=field.name, section=section)
        for field in dataclasses.fields(group)
    )


@dataclass(frozen=True, slots=True)
class Given:
    """A value that the user set.

    Attributes:
        where: the flag, variable or file that set the value, for messages.
        explicit: whether the value is for this very run, and not from a file or a variable that
            serves many runs.
        from_project: whether a project file set it, which came with the project and may be the
            work of others.
    """

    value: object
    where: str
    explicit: bool = True
    from_project: bool = False


UNUSED = Given("-", "-")
"""For a required option whose value does not matter."""
