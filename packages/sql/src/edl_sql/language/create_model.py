"""The statement ``CREATE MODEL`` of BigQuery: another spelling of TRAIN.

CREATE OR REPLACE MODEL my_model TRANSFORM(* EXCEPT(id))
    OPTIONS(model_type='dnn_regressor', input_label_cols=['price'], hidden_units=[10, 100])
    AS SELECT …;
"""

from __future__ import annotations

from collections.abc import Sequence

from edl.plugins.errors import Problem
from edl.plugins.options import BY_NAME
from edl.plugins.texts import did_you_mean
from edl_sql.language.clauses import ClauseReader
from edl_sql.language.statements import IfThere, Train
from edl_sql.language.tokens import SqlToken, is_word
from edl_sql.language.transform import Transform, read_transform

_EXAMPLE = "CREATE MODEL m OPTIONS(model_type='dnn_regressor', input_label_cols=['y']) AS SELECT …;"
_MODELS = {
    "LINEAR_REG": "LinearRegressor",
    "LOGISTIC_REG": "LinearClassifier",
    "DNN_CLASSIFIER": "DNNClassifier",
    "DNN_REGRESSOR": "DNNRegressor",
    "DNN_LINEAR_COMBINED_CLASSIFIER": "DNNLinearCombinedClassifier",
    "DNN_LINEAR_COMBINED_REGRESSOR": "DNNLinearCombinedRegressor",
    "AUTOENCODER": "anomaly.Autoencoder",
}
_NEAREST = {
    "BOOSTED_TREE_CLASSIFIER": "DNN_CLASSIFIER",
    "BOOSTED_TREE_REGRESSOR": "DNN_REGRESSOR",
    "RANDOM_FOREST_CLASSIFIER": "DNN_CLASSIFIER",
    "RANDOM_FOREST_REGRESSOR": "DNN_REGRESSOR",
    "AUTOML_CLASSIFIER": "DNN_CLASSIFIER",
    "AUTOML_REGRESSOR": "DNN_REGRESSOR",
    "KMEANS": "AUTOENCODER",
    "PCA": "AUTOENCODER",
}
_SETTINGS = {
    "max_iterations": "num_epochs",
    "batch_size": "minibatch_size",
    "optimizer": "optimizer",
}
_PARAMETERS = {"learn_rate": "learning_rate"}


def find_select(words: Sequence[SqlToken]) -> int:
    """Return the index of the first word of the SELECT of CREATE MODEL; behind them without AS."""
    found = (index for index, word in enumerate(words) if not word.depth and is_word(word, "AS"))
    return next(found, len(words) - 1) + 1


def read_create_model(text: str, words: Sequence[SqlToken]) -> Train:
    """Parse CREATE MODEL.

    Args:
        words: those of the statement.

    Raises:
        Problem: it is wrong, or has what edl lacks; the error names what is nearest.
    """
    reader = ClauseReader(text, words[1 : find_select(words)], _EXAMPLE)
    if_there, into = _read_name(reader)
    transform = read_transform(reader) if reader.accept("TRANSFORM") else Transform()
    options = _Options(reader)
    if not reader.accept("AS") or find_select(words) >= len(words):
        raise reader.mistake("expected AS and a SELECT", 0, _EXAMPLE)
    model = options.take_model()
    label = options.take_label()
    settings = options.take_settings()
    return Train(
        text[words[find_select(words)].start : words[-1].end],
        model,
        into,
        {_PARAMETERS.get(name, name): value for name, value in options.values.items()},
        settings,
        {"": tuple(transform.terms)} if transform.terms else {},
        transform.renamed.get(label, label),
        if_there=if_there,
        text=text[words[0].start : words[-1].end],
    )


def _read_name(reader: ClauseReader) -> tuple[IfThere, str]:
    """Read the words up to the name of the model; return what is done if it is there, and it."""
    if_there = IfThere.REFUSE
    if reader.accept("OR"):
        reader.expect("REPLACE")
        if_there = IfThere.REPLACE
    if not reader.accept("MODEL"):
        raise reader.mistake("only CREATE MODEL is known", 0, _EXAMPLE)
    if reader.accept("IF"):
        reader.expect("NOT")
        reader.expect("EXISTS")
        if_there = IfThere.KEEP
    return if_there, reader.read_model_name("MODEL")


class _Options:
    """The options of CREATE MODEL, each taken by what it means.

    Attributes:
        values: those that are not taken yet, by name.
    """

    def __init__(self, reader: ClauseReader) -> None:
        self._reader = reader
        self._places: dict[str, int] = {}
        self.values: dict[str, object] = {}
        if not (reader.accept("OPTIONS") and reader.accept("(")):
            raise reader.mistake("expected OPTIONS(…)", 0, _EXAMPLE)
        while not reader.accept(")"):
            place = reader.index
            name = reader.read_name("an option").lower()
            if not reader.accept("="):
                raise reader.mistake(f"expected = after {name}", 0, _EXAMPLE)
            self.values[name], self._places[name] = reader.read_value(name), place
            reader.accept(",")

    def take_model(self) -> str:
        kind = str(self.values.pop("model_type", "")).upper()
        if kind not in _MODELS:
            nearest = f"The nearest is {_NEAREST[kind]}." if kind in _NEAREST else ""
            remedy = nearest or did_you_mean(kind, _MODELS) or f"There are {', '.join(_MODELS)}."
            raise self._mistake("model_type", f"edl has no model_type {kind or '(none)'}", remedy)
        return _MODELS[kind]

    def take_label(self) -> str:
        match self.values.pop("input_label_cols", []):
            case []:
                return ""
            case [str(label)]:
                return label
            case _:
                remedy = "input_label_cols=['price']"
                raise self._mistake("input_label_cols", "edl learns one label", remedy)

    def take_settings(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, option in _SETTINGS.items():
            if name in self.values:
                found[option] = self.values.pop(name)
                try:
                    BY_NAME[option].kind.read(found[option])
                except ValueError as error:
                    raise self._mistake(name, f"{name}: {error}", _EXAMPLE) from None
        return found

    def _mistake(self, name: str, what: str, remedy: str) -> Problem:
        return self._reader.mistake(what, self._places.get(name, 0) - self._reader.index, remedy)
