"""Statements of SQLFlow, BigQuery and databases that edl lacks: what to write in their place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from edl.plugins.errors import Problem
from edl.plugins.texts import did_you_mean
from edl_sql.language.tokens import SqlToken, is_word, mistake

_BEST = "The nearest is to PREDICT every choice, and to take the best in a SELECT."
_VERBS = {
    "MAXIMIZE": _BEST,
    "MINIMIZE": _BEST,
    "RUN": "edl train runs programs of your own: edl train --help.",
}
"""After TO."""
_EXPLAIN = "Write SELECT … TO EXPLAIN my_model;"
_FUNCTIONS = {
    "PREDICT": "Write SELECT … PREDICT testdata.predicted_price USING my_model;",
    "EVALUATE": "Write SELECT … TO EVALUATE my_model LABEL price INTO my_results;",
    "EXPLAIN_PREDICT": _EXPLAIN,
    "GLOBAL_EXPLAIN": _EXPLAIN,
    "FEATURE_IMPORTANCE": _EXPLAIN,
    "FEATURE_INFO": "Write DESCRIBE my_model;",
    "WEIGHTS": "Write DESCRIBE my_model; the values are in the model's folder.",
    "TRAINING_INFO": "edl events and edl dashboard show the jobs that train models.",
}
"""Functions of BigQuery ML that take a MODEL."""
_OF_DATABASES = (
    *("ALTER", "ATTACH", "BEGIN", "COMMIT", "COPY", "CREATE", "DELETE", "DROP", "GRANT", "INSERT"),
    *("LOAD", "MERGE", "PRAGMA", "ROLLBACK", "SET", "SUMMARIZE", "TRUNCATE", "UPDATE", "USE"),
)


_FIRST_WORDS = ("CREATE", "DESCRIBE", "DROP", "SELECT", "SHOW", "WITH")


def refuse_of_databases(text: str, words: Sequence[SqlToken]) -> None:
    """Refuse a statement that begins with a word for clients of databases, or a misspelt one."""
    word, after = words[0], words[1].text.upper() if words[1:] else ""
    if is_word(word, "CREATE") and (meant := did_you_mean(after, ("MODEL",))):
        raise mistake(f"there is no CREATE {after}", text, words[1].start, meant)
    if is_word(word, *_OF_DATABASES):
        raise mistake(
            f"edl sql does not send {word.text.upper()} to the database",
            text,
            word.start,
            "Use the database's own client, such as psql, mysql or sqlite3.",
        )
    meant = did_you_mean(word.text.upper(), _FIRST_WORDS)
    if meant and not is_word(word, *_FIRST_WORDS):
        raise mistake(f"no statement begins with {word.text}", text, word.start, meant)


def refuse_foreign(text: str, words: Sequence[SqlToken]) -> None:
    """Refuse a statement without a verb of edl that has one of SQLFlow or BigQuery ML.

    Raises:
        Problem: it has one; the error names what is nearest.
    """
    for word, after in pairwise(words):
        verb = after.text.upper()
        if not word.depth and is_word(word, "TO") and verb in _VERBS:
            raise _refusal(text, after, verb, _VERBS[verb])
        if (
            not word.depth
            and is_word(word, "ANALYZE")
            and after.is_name
            and "USING" in {each.text.upper() for each in words}
        ):
            raise _refusal(text, word, "ANALYZE", _EXPLAIN)
    for index, word in enumerate(words[:-4]):
        name, bracket, model = words[index + 2 : index + 5]
        if is_word(word, "ML") and bracket.text == "(" and is_word(model, "MODEL"):
            function = name.text.upper()
            known = f"Functions of models that have another form are {', '.join(_FUNCTIONS)}."
            raise _refusal(text, word, f"ML.{function}", _FUNCTIONS.get(function, known))


def _refusal(text: str, word: SqlToken, what: str, remedy: str) -> Problem:
    return mistake(f"edl does not support {what}", text, word.start, remedy)
