"""Write what derives from the table of options: the types of the Python API and docs/options.md.

Run by ``./dev generate``; ``--check`` only compares and names files that are out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from edl.core.options import OPTIONS, Option, Verb, options_of
from edl.core.options.value_types import Flag

ROOT = Path(__file__).resolve().parent.parent
TYPES = ROOT / "packages" / "client" / "src" / "edl" / "core" / "options" / "python_types.py"
DOCUMENT = ROOT / "docs" / "options.md"

_TYPES_HEAD = '''\
"""Types of the options in Python, written by ``./dev generate`` from the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Literal, TypedDict

from edl.core.options.value_types import StepRange, WindowLength, WorkerRange

PathOrUri = str | PurePath
'''

_DOCUMENT_HEAD = """# Options of jobs

`./dev generate` writes this page from the table of options, `edl/core/options/`. The command line,
the Python API, settings files and variables use the same table;
[the command line](command-line.md#settings) says which of them wins.

| | `--minibatch-size 64` is written as |
|---|---|
| Python | `minibatch_size=64` |
| `edl.toml` | `minibatch-size = 64` |
| variable | `EDL_MINIBATCH_SIZE=64` |

`--minibatch_size` is the same as `--minibatch-size`; all options have both forms. A flag that is on
by default, such as `--shuffle`, is switched off with `--no-shuffle`. In Python and in files, flags
are true or false. An unknown option is an error.

- **Durations** are written as `90s`, `15m` or `2h30m`; a number alone is a number of seconds.
- **Several values**: where the table says so, repeat the option (`--data a.csv --data b.csv`), or
  write a list in Python and in files (`data = ["a.csv", "b.csv"]`). A variable holds one value. A
  comma has no special meaning, so a path may contain one; `--keep` takes names with commas between
  them, or a list.
- **Paths** may contain `~` and `$NAME`. A relative path in a settings file starts from the folder
  of the file. Options marked with ¹ also take any URI that fsspec knows, such as `gs://…` and
  `s3://…`; install gcsfs or s3fs for these. All others take local files and folders only. In a
  store, single files appear whole; a folder of several files may be seen growing.
- **Single runs**: options marked with ² are set for one run only, never by a file or a variable.

An option on the command line or in Python that can have no effect is an error, for example
`--grads-to-wait` without `--update sync`, `--max-staleness` without `--update bounded`,
`--overlap` with `--update sync`, `--max-staleness 0` or `--local-steps`, `--local-steps` without
`--update async`, `--evaluation-steps` without `--validation-data`, `--checkpoint-steps` and
`--keep-checkpoints` without `--checkpoint-dir`, and any option of updates on a parameter server
with `--strategy allreduce`. In `edl.toml` and in variables, edl ignores such an option: it may be
there for other jobs. With `--strategy auto`, an option of updates on a parameter server chooses
the parameter server, wherever it is set. [The ledger](ledger.md#which-strategy-to-choose) compares
the strategies.
"""


def python_types() -> str:
    """Return the module of typed dictionaries, one for each function of the Python API."""
    shared = [option for option in OPTIONS if option.verbs == set(Verb)]
    parts = [_TYPES_HEAD, _typed_dictionary("SharedOptions", "TypedDict, total=False", shared)]
    for verb in Verb:
        own = [option for option in options_of(verb) if option not in shared]
        parts.append(_typed_dictionary(f"{verb.capitalize()}Options", "SharedOptions", own, verb))
    return "".join(parts)


def _typed_dictionary(name: str, base: str, options: Sequence[Option], verb: str = "") -> str:
    subject = f"Options of ``elasticdl.{verb}``" if verb else "Options that all kinds of jobs have"
    fields = "".join(f"    {option.name}: {option.annotation}\n" for option in options)
    total = ", total=False" if verb else ""
    return f'\n\nclass {name}({base}{total}):\n    """{subject}."""\n\n{fields}'


def document() -> str:
    """The page of all options, a table for each group."""
    parts = [_DOCUMENT_HEAD]
    for section, options in groupby(OPTIONS, lambda option: option.section):
        parts.append(f"\n## {section}\n\n")
        parts.append("| option | commands | meaning | default | example |\n|---|---|---|---|---|\n")
        parts.extend(_row(option) for option in options)
    return "".join(parts)


def _row(option: Option) -> str:
    default = "" if option.required else option.shown_default
    cells = (
        _names(option) + "¹" * option.may_be_in_a_store + "²" * option.per_run,
        _commands(option),
        option.help,
        "required" if option.required else default,
        _example(option),
    )
    return f"| {' | '.join(cells)} |\n"


def _names(option: Option) -> str:
    if isinstance(option.kind, Flag):
        return f"`{option.flag}`" + (f" / `--no-{option.key}`" if option.default else "")
    metavar = option.kind.metavar.replace("|", "\\|")
    return f"`{option.flag} {metavar}`"


def _commands(option: Option) -> str:
    return "all" if option.verbs == set(Verb) else ", ".join(v for v in Verb if v in option.verbs)


def _example(option: Option) -> str:
    if isinstance(option.kind, Flag):
        return f"`--no-{option.key}`" if option.default else f"`{option.flag}`"
    value = option.example
    return f"`{option.flag} {value[:52] + '…' if len(value) > 60 else value}`"


def main(arguments: Sequence[str]) -> int:
    wanted = {TYPES: python_types(), DOCUMENT: document()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run ./dev generate", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
