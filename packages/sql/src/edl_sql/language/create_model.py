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
    "BOOSTED_TREE_CLASSIFIER": "BoostedTreesClassifier",
    "BOOSTED_TREE_REGRESSOR": "BoostedTreesRegressor",
    "AUTOENCODER": "anomaly.Autoencoder",
}
_NEAREST = {
    "RANDOM_FOREST_CLASSIFIER": "BOOSTED_TREE_CLASSIFIER",
    "RANDOM_FOREST_REGRESSOR": "BOOSTED_TREE_REGRESSOR",
    "AUTOML_CLASSIFIER": "DNN_CLASSIFIER",
    "AUTOML_REGRESSOR": "DNN_REGRESSOR",
    "KMEANS": "AUTOENCODER",
    "PCA": "AUTOENCODER",
    "ARIMA_PLUS": "DNN_REGRESSOR, with earlier values as columns of the SELECT",
    "MATRIX_FACTORIZATION": "SELECT … TRAIN regressor.deepfm.DeepFM COLUMN EMBEDDING(user, 8), …",
    "TENSORFLOW": "edl train --init-from, which begins with the values of a file",
    "ONNX": "edl train --init-from, which begins with the values of a file",
}
_SETTINGS = {
    "max_iterations": "num_epochs",
    "batch_size": "minibatch_size",
    "optimizer": "optimizer",
}
_SIMPLER = "weight_decay=2 keeps a network simple, and is the default."
_OTHER_OPTIONS = {
    "dropout": _SIMPLER,
    "l1_reg": _SIMPLER,
    "l2_reg": _SIMPLER,
    "early_stop": "max_iterations is the number of epochs; the rate falls to zero behind the last.",
    "data_split_method": "NO_SPLIT is the only one: leave rows out by WHERE, and TO EVALUATE them.",
    "auto_class_weights": "Repeat the rows of rare classes in the SELECT, by UNION ALL.",
    "class_weights": "Repeat the rows of rare classes in the SELECT, by UNION ALL.",
    "learn_rate_strategy": "The rate falls from learn_rate to zero.",
    "activation_fn": "The networks have relu only.",
    "enable_global_explain": "SELECT … TO EXPLAIN my_model; explains a model at any time.",
}
"""Options of BigQuery that edl lacks, and what is nearest."""
_LABEL = "label"
"""The column to learn if no option names one."""
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
    model = options.take_model()
    if not reader.accept("AS") or find_select(words) >= len(words):
        raise reader.mistake("expected AS and a SELECT", 0, _EXAMPLE)
    label = options.take_label() if model != _MODELS["AUTOENCODER"] else ""
    # Of trees, iterations are rounds, which are a parameter.
    settings = {} if model.startswith("BoostedTrees") else options.take_settings()
    return Train(
        text[words[find_select(words)].start : words[-1].end],
        model,
        into,
        {_PARAMETERS.get(name, name): value for name, value in options.values.items()},
        settings,
        {"": tuple(transform.terms)} if transform.terms else {},
        transform.renamed.get(label, label),
        if_there=if_there,
        left_out=tuple(transform.left_out),
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
        if "labels" in self.values:  # the older name
            self.values.setdefault("input_label_cols", self.values.pop("labels"))
        match self.values.pop("input_label_cols", []):
            case []:
                return _LABEL
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
        if str(self.values.get("data_split_method")).upper() == "NO_SPLIT":
            del self.values["data_split_method"]
        for name in self.values:
            known = (*_SETTINGS, "input_label_cols", "model_type")
            if name not in known and (meant := did_you_mean(name, known)):
                raise self._mistake(name, f"edl has no option {name}", meant)
        for name, remedy in _OTHER_OPTIONS.items():
            if name in self.values:
                raise self._mistake(name, f"edl has no option {name}", remedy)
        return found

    def _mistake(self, name: str, what: str, remedy: str) -> Problem:
        return self._reader.mistake(what, self._places.get(name, 0) - self._reader.index, remedy)
