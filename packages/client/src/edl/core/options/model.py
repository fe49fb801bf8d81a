"""Options that choose the model."""

from __future__ import annotations

from dataclasses import dataclass

from edl.core.options.option import (
    EVALUATE_OR_PREDICT,
    TRAIN,
    TRAIN_OR_EVALUATE,
    Option,
    declare,
)
from edl.core.options.value_types import Params, RateSetting, Text


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model file or the trained model, and which of its functions to use."""

    model_zoo: str = declare(
        Option(
            Text("DIR|URL"),
            "Folder of model files, or https://host/path.git[#REF[:FOLDER]].",
            "model_zoo",
            verbs=TRAIN,
            required=True,
            is_path=True,
            spec="model.model_zoo",
        )
    )
    model_def: str = declare(
        Option(
            Text("A.B.NAME"),
            "The model: NAME in the file A/B.py of the model zoo, or the module A.B alone.",
            "mnist.mnist_functional_api",
            verbs=TRAIN,
            required=True,
            spec="model.model_def",
        )
    )
    params: str = declare(
        Option(
            Params(),
            "Parameters of the model and its functions, written as Python literals.",
            '"hidden_units=[10, 5], learning_rate=0.01"',
            verbs=TRAIN,
            spec="model.params",
        )
    )
    set: float | None = declare(
        Option(
            RateSetting(),
            "Replace the constant learning rate of the model file's optimizer; edl set does so "
            "while the job runs.",
            "learning-rate=0.0003",
            default=None,
            default_text="as the optimizer says",
            verbs=TRAIN,
            spec="model.learning_rate",
        )
    )
    input_fn: str = declare(
        Option(
            Text("NAME"),
            "Name of the input_fn to use instead of the model file's.",
            "my_input_fn",
            spec="model.input_fn",
        )
    )
    dataset_fn: str = declare(
        Option(
            Text("NAME"),
            "Name of the dataset_fn to use instead of the model file's.",
            "my_dataset_fn",
            spec="model.dataset_fn",
        )
    )
    loss: str = declare(
        Option(
            Text("NAME"),
            "Name of the loss to use instead of the model file's, or one of Keras (mse).",
            "my_loss",
            verbs=TRAIN_OR_EVALUATE,
            spec="model.loss",
        )
    )
    optimizer: str = declare(
        Option(
            Text("NAME"),
            "Name of the optimizer to use instead of the model file's, or one of Keras (adam).",
            "my_optimizer",
            verbs=TRAIN,
            spec="model.optimizer",
        )
    )
    eval_metrics_fn: str = declare(
        Option(
            Text("NAME"),
            "Name of the eval_metrics_fn to use instead of the model file's, or names of Keras "
            "(accuracy,mae).",
            "my_metrics",
            verbs=TRAIN_OR_EVALUATE,
            spec="model.eval_metrics_fn",
        )
    )
    feature_columns: str = declare(
        Option(
            Text("NAME"),
            "Name of the feature_columns to use instead of the model file's.",
            "my_features",
            spec="model.feature_columns",
        )
    )
    label_columns: str = declare(
        Option(
            Text("NAME"),
            "Name of the label_columns to use instead of the model file's.",
            "my_labels",
            verbs=TRAIN_OR_EVALUATE,
            spec="model.label_columns",
        )
    )
    trained_model: str = declare(
        Option(
            Text("DIR"),
            "Folder or URI that a training job wrote.",
            "my_model",
            verbs=EVALUATE_OR_PREDICT,
            required=True,
            is_path=True,
            may_be_in_a_store=True,
            spec="trained_model",
        )
    )
