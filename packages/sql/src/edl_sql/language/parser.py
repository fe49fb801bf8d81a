"""Parses statements of ``edl sql``: a SELECT of the database, and what to do with its rows.

    SELECT … TRAIN regressor.DNN WITH hidden_units=[10, 100] LABEL price INTO my_model;
    SELECT … TO PREDICT testdata.predicted_price USING my_model;
    SELECT … TO EVALUATE my_model LABEL price INTO my_results;
    SELECT … TO EXPLAIN my_model INTO my_explanations;
    SHOW TRAIN my_model;
    SELECT …;

TRAIN, PREDICT and EVALUATE are no words of SQL, and may be names in the SELECT. A statement is
therefore cut at the last of them that stands outside of brackets, texts and comments and is
followed by what must follow it. The SELECT is never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edl.plugins.options import BY_NAME, Verb
from edl.plugins.texts import did_you_mean
from edl_sql.language.clauses import CLAUSES, ClauseReader
from edl_sql.language.columns import ColumnTerm, read_terms
from edl_sql.language.create_model import find_select, read_create_model
from edl_sql.language.positions import SqlPositions
from edl_sql.language.refusals import refuse_foreign, refuse_of_databases
from edl_sql.language.statements import (
    Describe,
    DropModel,
    Evaluate,
    Explain,
    Predict,
    Query,
    ShowModels,
    ShowTables,
    ShowTrain,
    Statement,
    Train,
)
from edl_sql.language.table_names import join_name
from edl_sql.language.tokens import Dialect, SqlToken, is_word, mistake, tokens

_VERBS = ("TRAIN", "PREDICT", "EVALUATE", "EXPLAIN")
_ONLY_AFTER_TO = ("EXPLAIN",)
_FOLLOWERS = {
    "TRAIN": CLAUSES,
    "PREDICT": ("WITH", "USING"),
    "EVALUATE": ("WITH", "LABEL", "INTO", ""),  # also nothing
    "EXPLAIN": ("WITH", "USING", "INTO", ""),
}
_MEANT = {
    "TRAIN": "WITH, COLUMN, LABEL or INTO",
    "PREDICT": "USING",
    "EVALUATE": "WITH, LABEL, INTO or nothing",
    "EXPLAIN": "INTO or nothing",
}
_EXAMPLES = {
    "TRAIN": "SELECT … TRAIN regressor.DNN WITH learning_rate=0.01 LABEL price INTO my_model;",
    "PREDICT": "SELECT … PREDICT testdata.predicted_price USING my_model;",
    "EVALUATE": "SELECT … TO EVALUATE my_model LABEL price INTO my_results;",
    "EXPLAIN": "SELECT … TO EXPLAIN my_model INTO my_explanations;",
}
_TRAIN_EXAMPLE = _EXAMPLES["TRAIN"]
_ABOUT_MODELS = {
    "SHOW": "SHOW MODELS;",
    "DESCRIBE": "DESCRIBE my_model;",
    "DESC": "DESC my_model;",
    "DROP": "DROP MODEL my_model;",
}
_SHOWN = ("MODELS", "TABLES", "TRAIN")
_SELECT = ("SELECT", "WITH", "(", "VALUES", "TABLE", "FROM")
_METRICS = {"validation.metrics": "eval_metrics_fn"}
_PREDICT_SETTINGS = {"predict.batch_size": "minibatch_size", "predict.num_workers": "num_workers"}
_SETTINGS = {
    "optimizer": "optimizer",
    "EPOCHS": "num_epochs",
    "BATCHSIZE": "minibatch_size",
    "train.epoch": "num_epochs",
    "train.batch_size": "minibatch_size",
    "train.num_workers": "num_workers",
    **{
        f"train.{name}": name
        for name, option in BY_NAME.items()
        if option.section == "Training" and Verb.TRAIN in option.verbs
    },
    "model.optimizer": "optimizer",
    "model.loss": "loss",
    "validation.select": "validation",
}
"""Attributes by their names in WITH: options of ``edl train``, and ``Train.validation``."""
_PREFIXES = ("model", "optimizer")
_OF_XGBOOST = ("train.num_boost_round", "train.early_stopping_rounds")
"""Parameters of trees as SQLFlow writes them."""


def parse_statements(text: str, dialect: Dialect = Dialect.STANDARD) -> list[Statement]:
    """Parse the statements of a text, which semicolons separate.

    Raises:
        Problem: one of them is wrong, or there is none; it shows the place.
    """
    text = text.removeprefix("\ufeff")  # Windows begins files with it
    found: list[Statement] = []
    current: list[SqlToken] = []
    for token in tokens(text, dialect):
        if token.text == ";" and not token.depth:
            if current:
                found.append(_parse_statement(text, current))
            current = []
        else:
            current.append(token)
    if current:
        found.append(_parse_statement(text, current))
    if not found:
        raise mistake("there is no statement", text, len(text), _TRAIN_EXAMPLE)
    return found


def _parse_statement(text: str, words: Sequence[SqlToken]) -> Statement:
    first = 0
    if is_word(words[0], "CREATE") and any(is_word(each, "MODEL", "OR") for each in words[1:2]):
        found: Statement = read_create_model(text, words)
        first = find_select(words)
    else:
        found = _statement(text, words)
    return replace(found, positions=SqlPositions(text, tuple(words), first))


def _statement(text: str, words: Sequence[SqlToken]) -> Statement:
    if is_word(words[0], *_ABOUT_MODELS):
        return _about_models(text, words)
    begins_select = is_word(words[0], *_SELECT)
    verb = _cut(text, words, may_be_query=begins_select)
    if verb is None:
        return Query(text[words[0].start : words[-1].end])
    before = verb - 1 if is_word(words[verb - 1], "TO") else verb
    if not before:
        raise mistake("a SELECT must come first", text, words[0].start, _TRAIN_EXAMPLE)
    if not begins_select:
        remedy = did_you_mean(words[0].text.upper(), _SELECT) or _TRAIN_EXAMPLE
        raise mistake("this is not a SELECT", text, words[0].start, remedy)
    select = text[words[0].start : words[before - 1].end]
    word = words[verb].text.upper()
    rest = ClauseReader(text, words[verb + 1 :], _EXAMPLES[word])
    match word:
        case "TRAIN":
            return replace(_train(select, rest), text=text[words[0].start : words[-1].end])
        case "PREDICT":
            return _predict(select, rest)
        case "EXPLAIN":
            return _explain(select, rest)
        case _:
            return _evaluate(select, rest)


def _about_models(text: str, words: Sequence[SqlToken]) -> Statement:
    """Parse SHOW, DESCRIBE and DROP."""
    reader = ClauseReader(text, words[1:], f"{_ABOUT_MODELS['SHOW']} or SHOW TRAIN my_model;")
    first = words[0].text.upper()
    found: Statement
    if first == "SHOW" and reader.accept("MODELS"):
        found = ShowModels()
    elif first == "SHOW" and reader.accept("TRAIN"):
        found = ShowTrain(reader.read_model_name("SHOW TRAIN"))
    elif first == "SHOW" and reader.accept("TABLES"):
        has_schema = reader.accept("FROM", "IN")
        found = ShowTables(reader.read_name("a schema") if has_schema else "")
    elif first == "DROP" and reader.accept("MODEL"):
        if_exists = reader.accept("IF") and reader.accept("EXISTS")
        found = DropModel(reader.read_model_name("DROP MODEL"), if_exists)
    elif first in ("DESCRIBE", "DESC"):
        if len(words) > 2:
            reader.accept("MODEL", "TABLE")
        found = Describe(*reader.read_model_or_table("DESCRIBE"))
    else:
        refuse_of_databases(text, words)
        what = "only SHOW MODELS, SHOW TABLES and SHOW TRAIN are known"
        remedy = "DESCRIBE my_table; shows the columns of one."
        if meant := did_you_mean(words[1].text.upper() if words[1:] else "", _SHOWN):
            raise reader.mistake(what, 0, meant)
        raise mistake(what, text, words[0].start, remedy)
    reader.expect_end()
    return found


def _cut(text: str, words: Sequence[SqlToken], *, may_be_query: bool) -> int | None:
    """Return the index of TRAIN or another verb; None if it is a query without them."""
    at_top = [
        index
        for index, token in enumerate(words)
        if not token.depth
        and is_word(token, *_VERBS)
        and (not is_word(token, *_ONLY_AFTER_TO) or (index and is_word(words[index - 1], "TO")))
    ]
    for index in reversed(at_top):
        if _is_followed(words, index):
            return index
    meant = [i for i in at_top if i and is_word(words[i - 1], "TO")] or [
        index for index in at_top if _may_be_meant(words, index)
    ]
    if meant:
        word = words[meant[-1]].text.upper()
        _refuse_misspelt_clause(text, words, meant[-1])
        raise mistake(
            f"{word} must be followed by a name and {_MEANT[word]}",
            text,
            words[meant[-1]].start,
            _EXAMPLES[word],
        )
    refuse_foreign(text, words)
    if may_be_query:
        _refuse_misspelt_verb(text, words)
        return None
    refuse_of_databases(text, words)
    raise mistake(
        "the statement says neither TRAIN nor PREDICT nor EVALUATE",
        text,
        words[-1].end,
        _TRAIN_EXAMPLE,
    )


_OF_SELECT = (
    *("ALL", "AND", "AS", "ASC", "BETWEEN", "BY", "CASE", "CROSS", "DESC", "DISTINCT", "ELSE"),
    *("END", "EXCEPT", "FETCH", "FOR", "FROM", "FULL", "GROUP", "HAVING", "IN", "INNER"),
    *("INTERSECT", "IS", "JOIN", "LEFT", "LIKE", "LIMIT", "NATURAL", "NOT", "NULL", "OFFSET"),
    *("ON", "OR", "ORDER", "OUTER", "RIGHT", "SELECT", "TABLE", "THEN", "UNION", "USING"),
    *("WHEN", "WHERE", "WINDOW", "WITH"),
)
"""Words of a SELECT: next to them, a verb is the name of a column or a table."""


def _may_be_meant(words: Sequence[SqlToken], verb: int) -> bool:
    """Return whether a name follows, or a mistaken one such as ``TRAIN ../dnn``."""
    before = words[verb - 1] if verb else None
    if before and (before.text in (",", ".") or before.text.upper() in _OF_SELECT):
        return False
    if verb + 1 == len(words):
        # It may be the alias of a table, which can end a SELECT, but hardly one named like a verb.
        return verb > 0
    following = words[verb + 1]
    if following.text.upper() in _OF_SELECT:
        return False
    is_apart = following.start > words[verb].end
    return following.is_name or (is_apart and following.text[0] in "./~")


def _refuse_misspelt_verb(text: str, words: Sequence[SqlToken]) -> None:
    """Refuse a query that has a word like TRAIN, and behind it what follows TRAIN."""
    for index, token in enumerate(words):
        is_free = not token.depth and index and token.is_name and not is_word(token, *_OF_SELECT)
        meant = did_you_mean(token.text.upper(), _VERBS) if is_free else ""
        if not meant:
            continue
        verb = next(each for each in _VERBS if each in meant)
        is_after_to = is_word(words[index - 1], "TO")
        needs = {"TRAIN": "INTO", "PREDICT": "USING"}.get(verb)
        follows = _is_followed(words, index, verb) and any(
            is_word(each, needs or "") for each in words[index:]
        )
        if is_after_to or (follows and _may_be_meant(words, index)):
            what = f"there is no {token.text} in edl's statements"
            raise mistake(what, text, token.start, meant)


def _refuse_misspelt_clause(text: str, words: Sequence[SqlToken], verb: int) -> None:
    """Refuse a statement whose verb and name are followed by a word like LABEL."""
    end = verb + 1
    while end + 2 < len(words) and words[end + 1].text == ".":
        end += 2
    followers = [each for each in _FOLLOWERS[words[verb].text.upper()] if each]
    if end + 1 < len(words):
        word = words[end + 1]
        if meant := did_you_mean(word.text.upper(), followers):
            raise mistake(f"{word.text} is not expected here", text, word.start, meant)


def _is_followed(words: Sequence[SqlToken], index: int, verb: str = "") -> bool:
    end = index + 1
    if end >= len(words) or not words[end].is_name:
        return False
    if is_word(words[end], *CLAUSES) and words[end + 1 : end + 2] and words[end + 1].text != ".":
        return False  # TRAIN is a column here: COLUMN train LABEL label
    while end + 2 < len(words) and words[end + 1].text == "." and words[end + 2].is_name:
        end += 2
    followers = _FOLLOWERS[verb or words[index].text.upper()]
    if "" in followers:  # the name of a trained model may have hyphens
        while end + 1 < len(words) and words[end + 1].start == words[end].end:
            end += 1
    if end + 1 == len(words):
        return "" in followers
    return is_word(words[end + 1], *followers)


def _train(select: str, rest: ClauseReader) -> Train:
    model_def = ".".join(rest.read_dotted_name("a model such as regressor.DNN"))
    params: dict[str, object] = {}
    settings: dict[str, object] = {}
    columns: dict[str, tuple[ColumnTerm, ...]] = {}
    label = into = ""
    seen: set[str] = set()
    while rest.has_more():
        clause = rest.read_clause(seen)
        if clause == "WITH":
            params, settings = rest.read_attributes(
                {**_SETTINGS, **_METRICS}, _PREFIXES, ("schema",), _OF_XGBOOST
            )
        elif clause == "COLUMN":
            _columns(rest, columns, seen)
        elif clause == "LABEL":
            label = rest.read_name("the column to learn")
        elif clause == "INTO":
            into = rest.read_model_name("INTO")
        else:
            remedy = "To begin with the values of a model: WITH train.init_from='models/my_model'"
            raise rest.mistake("USING of a trained model is for PREDICT", -1, remedy)
    validation = settings.pop("validation", "")
    if not isinstance(validation, str):
        raise rest.mistake("validation.select is not a text", -1, "validation.select='SELECT …'")
    if not into:
        raise rest.mistake("INTO and the name of the model are missing", 0, _TRAIN_EXAMPLE)
    return Train(select, model_def, into, params, settings, columns, label, validation)


def _columns(
    rest: ClauseReader, columns: dict[str, tuple[ColumnTerm, ...]], seen: set[str]
) -> None:
    """Read one COLUMN clause; there is one for each target of FOR."""
    terms = read_terms(rest)
    target = ""
    if rest.accept("FOR"):
        target = rest.read_name("a parameter of the model")
        seen.discard("COLUMN")
    if target in columns:
        raise rest.mistake(f"FOR {target} appears twice", -1, _TRAIN_EXAMPLE)
    if not target and columns:
        raise rest.mistake("this COLUMN needs FOR, like those before it", -1, _TRAIN_EXAMPLE)
    columns[target] = terms


def _predict(select: str, rest: ClauseReader) -> Predict:
    start = rest.index
    target = rest.read_dotted_name("a column such as testdata.predicted_price")
    if len(target) not in (2, 3):
        rest.index = start
        raise rest.mistake("PREDICT needs a table and a column", 0, rest.example)
    settings: dict[str, object] = {}
    if rest.accept("WITH"):
        _, settings = rest.read_attributes(_PREDICT_SETTINGS, ())
    if not rest.accept("USING"):
        raise rest.mistake("expected USING and the name of a model", 0, rest.example)
    using = rest.read_model_name("USING")
    rest.expect_end()
    return Predict(select, join_name(target[:-1]), target[-1], using, settings)


def _evaluate(select: str, rest: ClauseReader) -> Evaluate:
    model = rest.read_model_name("EVALUATE")
    settings: dict[str, object] = {}
    label = into = ""
    seen: set[str] = set()
    while rest.has_more():
        clause = rest.read_clause(seen)
        if clause == "WITH":
            _, settings = rest.read_attributes(_METRICS, ())
        elif clause == "LABEL":
            label = rest.read_name("the column with the truth")
        elif clause == "INTO":
            into = _into_table(rest)
        else:
            raise rest.mistake(f"{clause} is not for EVALUATE", -1, rest.example)
    return Evaluate(select, model, label, into, settings)


def _into_table(rest: ClauseReader) -> str:
    start = rest.index
    table = rest.read_dotted_name("the table of the results")
    if len(table) > 2:
        rest.index = start
        raise rest.mistake("INTO needs table or schema.table", 0, rest.example)
    return join_name(table)


def _explain(select: str, rest: ClauseReader) -> Explain:
    model = rest.read_model_name("EXPLAIN")
    if rest.accept("WITH"):
        raise rest.mistake("EXPLAIN has no settings", -1, "Leave out WITH.")
    of_trees = rest.accept("USING")
    if of_trees and not rest.accept("TREEEXPLAINER"):
        remedy = "Leave USING out: the model decides how it is explained."
        raise rest.mistake("only TreeExplainer, for trees, can be named", 0, remedy)
    into = _into_table(rest) if rest.accept("INTO") else ""
    rest.expect_end()
    return Explain(select, model, into, of_trees)
