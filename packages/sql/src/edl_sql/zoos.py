"""The zoos that statements find their models in: this package brings one with it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edl.plugins.jobs import source_of
from edl.plugins.texts import did_you_mean
from edl_proto.errors import EdlError, ErrorCode
from edl_runtime.image_names import IMAGE_ZOO
from edl_runtime.model.zoo_files import REQUIREMENTS

OWN_ZOO = Path(__file__).parent / "zoo"
"""The models of tables. In the repository this is a link to ``model_zoo``."""
MODELS = (
    *("regressor.DNN", "regressor.wide_and_deep.MagicalWAD", "regressor.deepfm.DeepFM"),
    *("classifier.DNN", "classifier.wide_and_deep.WideAndDeep", "classifier.deepfm.DeepFM"),
    *("trees.BoostedTreesRegressor", "trees.BoostedTreesClassifier"),
    "anomaly.Autoencoder",
)
_WIDE_AND_DEEP = {"dnn_hidden_units": "hidden_units"}
_OF_TREES = {
    **dict.fromkeys(("n_estimators", "n_trees", "max_iterations"), "num_boost_round"),
    **dict.fromkeys(("learning_rate", "learn_rate"), "eta"),
    **dict.fromkeys(("lambda", "l2_regularization", "l2_reg"), "reg_lambda"),
    **dict.fromkeys(("alpha", "l1_regularization", "l1_reg"), "reg_alpha"),
    **dict.fromkeys(("min_split_loss", "tree_complexity"), "gamma"),
    **dict.fromkeys(("min_node_weight", "min_tree_child_weight"), "min_child_weight"),
    "max_tree_depth": "max_depth",
    "num_class": "n_classes",
}
"""Names of parameters of XGBoost, TensorFlow and BigQuery."""
ALIASES: dict[str, tuple[str, dict[str, object], dict[str, str]]] = {
    "DNNClassifier": ("classifier.DNN", {}, {}),
    "DNNRegressor": ("regressor.DNN", {}, {}),
    "LinearClassifier": ("classifier.DNN", {"hidden_units": []}, {}),
    "LinearRegressor": ("regressor.DNN", {"hidden_units": []}, {}),
    "DNNLinearCombinedClassifier": (
        "classifier.wide_and_deep.WideAndDeep",
        {},
        _WIDE_AND_DEEP,
    ),
    "DNNLinearCombinedRegressor": ("regressor.wide_and_deep.MagicalWAD", {}, _WIDE_AND_DEEP),
    "BoostedTreesClassifier": ("trees.BoostedTreesClassifier", {}, _OF_TREES),
    "BoostedTreesRegressor": ("trees.BoostedTreesRegressor", {}, _OF_TREES),
}
"""Names that SQLFlow's users know: the model, its parameters, and other names of parameters."""
_NOT_HERE = {
    "xgboost.dart": "xgboost.gbtree",
    "xgboost.gblinear": "xgboost.gbtree, LinearRegressor or LinearClassifier",
    "DeepEmbeddingClusterModel": "anomaly.Autoencoder",
    "StackedRNNClassifier": "classifier.DNN",
    "AutoClassifier": "classifier.DNN",
    "AutoRegressor": "regressor.DNN",
    "StackedBiLSTMClassifier": "classifier.DNN",
    "LSTMBasedTimeSeriesModel": "regressor.DNN, with earlier values as columns",
    "RNNBasedTimeSeriesModel": "regressor.DNN, with earlier values as columns",
    "ARIMAWithSTLDecomposition": "regressor.DNN, with earlier values as columns",
    "OneClassSVM": "anomaly.Autoencoder",
    "ScoreCard": "LinearClassifier",
    "GCN": "classifier.DNN",
}
"""Models of SQLFlow that edl lacks, and what is nearest."""
_XGBOOST = "xgboost-cpu>=3.1"
_FURTHER_ZOOS = ("model_zoo", IMAGE_ZOO)


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model that a statement names.

    Attributes:
        zoo: the folder or URL that has it.
        model_def: its name there.
        params: parameters, those of the statement among them.
        source: the text of its file; empty if the zoo is no folder of this machine.
        name: of the model in its file.
    """

    zoo: str
    model_def: str
    params: Mapping[str, object]
    source: str
    name: str


def find_model(model_def: str, params: Mapping[str, object], given: str) -> FoundModel:
    """Return the model of a statement.

    Args:
        params: those of the statement.
        given: the folder or URL of ``--model-zoo``; by default ``model_zoo`` here, or
            ``/model_zoo``. Models that it lacks are those of this package.

    Raises:
        EdlError: MODEL_NOT_FOUND or MODEL_IMPORT.
    """
    further = [given] if given else [zoo for zoo in _FURTHER_ZOOS if Path(zoo).is_dir()][:1]
    own_name, own_params, spelt = ALIASES.get(
        _of_objective(model_def.removeprefix("sqlflow_models."), params), (model_def, {}, {})
    )
    errors = []
    for zoo in further:
        try:
            return FoundModel(zoo, model_def, params, *source_of(Path(zoo), model_def))
        except EdlError as error:
            if error.code != ErrorCode.MODEL_NOT_FOUND:
                raise
            errors.append(error)
    try:
        found = source_of(OWN_ZOO, own_name)
    except EdlError as error:
        errors.append(error)
        raise _with_remedy(errors[0], model_def) from None
    known = {spelt.get(name, name): value for name, value in params.items()}
    return FoundModel(str(OWN_ZOO), own_name, {**own_params, **known}, *found)


def copy_with_xgboost(folder: Path) -> str:
    """Copy the zoo of this package into a folder; an image that is made of the copy has XGBoost."""
    copy = Path(shutil.copytree(OWN_ZOO, folder))
    with (copy / REQUIREMENTS).open("a") as file:
        file.write(f"{_XGBOOST}\n")
    return str(copy)


def _of_objective(name: str, params: Mapping[str, object]) -> str:
    """Return the trees that ``xgboost.gbtree`` means, and any other name as it is."""
    if name != "xgboost.gbtree":
        return name
    has_classes = str(params.get("objective")).startswith(("binary:", "multi:"))
    return "BoostedTreesClassifier" if has_classes else "BoostedTreesRegressor"


def _with_remedy(error: EdlError, model_def: str) -> EdlError:
    nearest = _NOT_HERE.get(model_def.rpartition("sqlflow_models.")[2])
    if nearest:
        error.what = f"edl has no {model_def}"
        error.remedy = f"The nearest model is {nearest}."
    elif meant := did_you_mean(model_def, (*MODELS, *ALIASES)):
        error.what, error.where, error.remedy = f"there is no model {model_def}", "", meant
    return error
