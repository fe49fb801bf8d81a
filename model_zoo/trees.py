"""Gradient-boosted trees on rows of a table, grown by XGBoost.

    edl train --model-zoo model_zoo --model-def trees.BoostedTreesRegressor \\
        --num-epochs 100 --minibatch-size 1000000 --local-steps 2 ...

An epoch is one minibatch of all rows, and grows a round of trees: ``--minibatch-size`` is at least the
number of rows, and ``--num-epochs`` the most rounds that there can be. ``edl sql`` chooses these options
itself. The trees are weights of the model, so predicting needs no XGBoost.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from explanations import MARK
from sqlflow import elasticdl_input_function
from table_schema import label_column, number_of_classes
from tree_choice import CANDIDATES, MAX_ROUNDS, can_choose, choose_growth
from tree_ensemble import TreeEnsemble
from tree_growth import LOGARITHM, grow, import_xgboost
from tree_inputs import TreeInputs

_MAX_DEPTH = 10
_ROUNDS = 100
_REGRESSION = (
    *("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "reg:logistic"),
    *LOGARITHM,
)
_CLASSIFICATION = ("binary:logistic", "multi:softprob", "multi:softmax")


class BoostedTrees(tf.keras.Model):
    """Trees, each of which corrects those before it (Chen and Guestrin, 2016).

    The parameters are those of XGBoost, of which some have other defaults.

    Args:
        objective: by default squared errors, or the logistic loss of all classes.
        num_boost_round: rounds of trees. By default the rows decide (``tree_choice``), unless there
            are very few or many: first how deep trees are and from which columns they grow, where
            ``max_depth`` and ``colsample_bynode`` do not say so, and then the rounds.
        rounds_per_epoch: rounds that an epoch grows; more of them read the rows less often.
        early_stopping_rounds: the training ends, and the best round's trees are the model, after so
            many rounds in which the loss of the validation data has not fallen.
        n_classes: number of classes; by default one more than the greatest label of the schema.
        seed: of the rows and columns that are left out.
        schema: the content of ``schema.json``.
        label: name of the label; by default that of the schema.
        columns: names of columns, and functions of them as in ``column_functions``; by default all.

    Raises:
        ValueError: a parameter is out of range, or the columns do not fit the schema.
    """

    learns_whole_epochs = True
    objectives: Sequence[str] = ()

    def __init__(  # noqa: PLR0913  (statements name the parameters of XGBoost)
        self,
        objective: str | None = None,
        num_boost_round: int | None = None,
        rounds_per_epoch: int = 1,
        early_stopping_rounds: int | None = None,
        n_classes: int | None = None,
        eta: float = 0.1,
        max_depth: int | None = None,
        max_leaves: int = 0,
        grow_policy: str = "depthwise",
        min_child_weight: float = 1.0,
        gamma: float = 0.0,
        max_delta_step: float = 0.0,
        subsample: float = 0.8,
        colsample_bytree: float = 1.0,
        colsample_bylevel: float = 1.0,
        colsample_bynode: float | None = None,
        reg_lambda: float = 1.0,
        reg_alpha: float = 0.0,
        scale_pos_weight: float = 1.0,
        max_bin: int = 256,
        num_parallel_tree: int = 1,
        base_score: float | None = None,
        tweedie_variance_power: float = 1.5,
        huber_slope: float = 1.0,
        seed: int = 0,
        schema=None,
        label=None,
        columns=None,
    ):
        super().__init__()
        if schema is None:
            raise ValueError("trees need the parameter schema: the content of schema.json")
        given = {"max_depth": max_depth, "colsample_bynode": colsample_bynode}
        given = {name: value for name, value in given.items() if value is not None}
        levels = given.get("max_depth", CANDIDATES[0]["max_depth"])
        if not 1 <= levels <= _MAX_DEPTH:
            raise ValueError(f"max_depth is {levels}; trees have 1 to {_MAX_DEPTH} levels here")
        counts = (num_boost_round, rounds_per_epoch, num_parallel_tree)
        if min(each for each in counts if each is not None) < 1:
            raise ValueError(
                "num_boost_round, rounds_per_epoch and num_parallel_tree are at least 1"
            )
        self._rows = schema["rows"]
        self._rounds_per_epoch = rounds_per_epoch
        self._objective, outputs = self._choose(objective, n_classes, schema, label)
        self._columns = TreeInputs(schema, label, columns)
        self._chooses = (
            num_boost_round is None
            and early_stopping_rounds is None
            and can_choose(self._rows, outputs * num_parallel_tree)
        )
        candidates = [{**each, **given} for each in CANDIDATES]
        self._candidates = [
            each for number, each in enumerate(candidates) if each not in candidates[:number]
        ]
        self._max_rounds = num_boost_round or (MAX_ROUNDS if self._chooses else _ROUNDS)
        self._trees = TreeEnsemble(
            self._max_rounds, outputs, num_parallel_tree, levels, self._columns.is_category
        )
        self._choice = self.add_weight(
            name="choice", shape=(2,), initializer="zeros", trainable=False, dtype="float32"
        )
        self._parameters = {
            **self._candidates[0],
            "objective": self._objective,
            "eta": eta,
            "max_leaves": max_leaves,
            "grow_policy": grow_policy,
            "min_child_weight": min_child_weight,
            "gamma": gamma,
            "max_delta_step": max_delta_step,
            "subsample": subsample,
            "colsample_bytree": colsample_bytree,
            "colsample_bylevel": colsample_bylevel,
            "lambda": reg_lambda,
            "alpha": reg_alpha,
            "scale_pos_weight": scale_pos_weight,
            "max_bin": max_bin,
            "num_parallel_tree": num_parallel_tree,
            "tweedie_variance_power": tweedie_variance_power,
            "huber_slope": huber_slope,
            "seed": seed,
        }
        if outputs > 1:
            self._parameters["num_class"] = outputs
        if base_score is not None:
            self._parameters["base_score"] = base_score
        self.compile(tf.keras.optimizers.SGD(0.0))  # trees have no gradients

    def _choose(self, objective, n_classes, schema, label):
        """Return the objective, and how many numbers the trees add up to."""
        raise NotImplementedError

    def _check_objective(self, objective):
        if objective not in self.objectives:
            raise ValueError(
                f"{type(self).__name__} has no objective {objective}; there are "
                f"{', '.join(self.objectives)}"
            )
        return objective

    def call(self, inputs: dict, training=False):
        numbers = self._columns(inputs)
        if MARK not in inputs:
            return self._predict(self._trees(numbers))
        found = self._trees.explain(numbers, self._choose_sums(self._trees(numbers)))
        return found @ tf.constant(self._columns.shares, tf.float32)

    def _predict(self, sums):
        """Return predictions of the sums of trees: (n, outputs)."""
        raise NotImplementedError

    def _choose_sums(self, sums):
        """Return how much each sum of trees counts in an explanation: (n, outputs)."""
        return tf.one_hot(tf.argmax(sums, axis=1), sums.shape[1])

    def train_step(self, data):
        """Grow the trees of an epoch."""
        import_xgboost()
        features, labels = data
        trees, numbers = self._trees, self._columns(features)
        weights = (
            trees.splits,
            trees.leaves,
            trees.covers,
            trees.intercept,
            self._choice,
            trees.grown,
        )
        *grown, sums = tf.numpy_function(
            self._grow,
            [numbers, labels, trees(numbers), *weights],
            [tf.float32] * (len(weights) + 1),
        )
        for weight, value in zip(weights, grown, strict=True):
            weight.assign(tf.ensure_shape(value, weight.shape))
        sums = tf.ensure_shape(sums, (None, trees.outputs))
        return {"loss": tf.reduce_mean(self.default_loss(labels, self._predict(sums)))}

    def _grow(self, numbers, labels, sums, *weights):
        """Return the weights and the sums of all trees with the rounds of one more epoch."""
        splits, leaves, covers, intercept, choice, grown = weights
        if len(numbers) != self._rows:
            raise ValueError(
                f"trees learn from all {self._rows} rows at once, not from {len(numbers)}: train with "
                f"--minibatch-size {self._rows} --local-steps 2"
            )
        first = int(grown[0])
        labels = np.reshape(labels, -1).astype(np.float32)
        if not first:
            choice = np.array(self._choose_growth(numbers, labels), np.float32)
        candidate, all_rounds = map(int, choice)
        rounds = range(first, min(first + self._rounds_per_epoch, all_rounds))
        if not rounds:
            return *weights, sums
        *new, intercept, sums = grow(
            numbers,
            labels,
            sums,
            intercept,
            parameters={**self._parameters, **self._candidates[candidate]},
            is_category=self._columns.is_category,
            levels=self._trees.levels,
            rounds=rounds,
        )
        begin = first * self._trees.outputs * self._trees.parallel
        for weight, value in zip((splits, leaves, covers), new, strict=True):
            weight[begin : begin + len(value)] = value
        return splits, leaves, covers, intercept, choice, grown + np.float32(len(rounds)), sums

    def _choose_growth(self, numbers, labels):
        """Return the number of a candidate, and how many rounds there will be."""
        if not self._chooses:
            return 0, self._max_rounds
        return choose_growth(
            numbers,
            labels,
            parameters=self._parameters,
            candidates=self._candidates,
            is_category=self._columns.is_category,
        )

    @property
    def has_all_rounds(self):
        """Whether there are as many rounds of trees as there will be."""
        return 0 < float(self._choice[1]) <= float(self._trees.grown[0])

    # --input-fn, --loss and --eval-metrics-fn replace these defaults.

    @staticmethod
    def default_input(records, mode, label=None, schema=None):
        return elasticdl_input_function(records, mode, label, schema)


class BoostedTreesRegressor(BoostedTrees):
    """Trees that add up to a number, or to its logarithm."""

    objectives = _REGRESSION

    def _choose(self, objective, n_classes, schema, label):
        found = label_column(schema, label)
        if found is not None and found["feature"] == "bytes":
            raise ValueError(f"the label {found['name']} is a text, and regression needs a number")
        chosen = self._check_objective(objective or _REGRESSION[0])
        if found is not None and "min" in found:
            _check_range(chosen, found)
        return chosen, 1

    def _predict(self, sums):
        if self._objective in LOGARITHM:
            return tf.exp(sums)
        return tf.sigmoid(sums) if self._objective == "reg:logistic" else sums

    @staticmethod
    def default_loss(labels, predictions, objective=None):
        difference = tf.cast(labels, tf.float32) - predictions
        return tf.abs(difference) if objective == "reg:absoluteerror" else tf.square(difference)

    @staticmethod
    def default_metrics():
        return {
            "mean_absolute_error": tf.keras.metrics.MeanAbsoluteError(),
            "root_mean_squared_error": tf.keras.metrics.RootMeanSquaredError(),
        }


class BoostedTreesClassifier(BoostedTrees):
    """Trees that add up to a logit for each class; of two classes, to that of the second one."""

    objectives = _CLASSIFICATION

    def _choose(self, objective, n_classes, schema, label):
        classes = n_classes or number_of_classes(schema, label)
        chosen = self._check_objective(
            objective or (_CLASSIFICATION[0] if classes == 2 else _CLASSIFICATION[1])
        )
        if chosen == "binary:logistic" and classes != 2:
            raise ValueError(f"binary:logistic is for two classes, and the label has {classes}")
        return chosen, 1 if chosen == "binary:logistic" else classes

    def _predict(self, sums):
        if self._objective != "binary:logistic":
            return sums
        return tf.concat([tf.zeros_like(sums), sums], axis=1)

    @staticmethod
    def default_loss(labels, predictions):
        labels = tf.cast(tf.reshape(labels, [-1]), tf.int32)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, predictions)

    @staticmethod
    def default_metrics():
        return {"accuracy": tf.keras.metrics.SparseCategoricalAccuracy()}


def _check_range(objective, label):
    """Check labels as XGBoost does, whose errors do not name them."""
    least, greatest = label["min"], label["max"]
    if objective == "reg:logistic":
        fits, expected = least >= 0 and greatest <= 1, "from 0 to 1"
    elif objective == "reg:gamma":
        fits, expected = least > 0, "above 0"
    else:
        fits, expected = least >= 0 or objective not in LOGARITHM, "from 0 on"
    if not fits:
        raise ValueError(
            f"{objective} learns numbers {expected}, and the label {label['name']} goes from {least}"
            f" to {greatest}"
        )


class LastRound(tf.keras.callbacks.Callback):
    """Ends the training when there are all rounds of trees.

    With it, no epoch begins before the one before it has ended, since a round corrects all trees.
    """

    def on_epoch_end(self, epoch, logs=None):
        if self.model.has_all_rounds:
            self.model.stop_training = True


def callbacks(early_stopping_rounds: int | None = None, rounds_per_epoch: int = 1):
    """Return what ends the training."""
    if early_stopping_rounds is None:
        return [LastRound()]
    epochs = -(-early_stopping_rounds // rounds_per_epoch)
    return [
        tf.keras.callbacks.EarlyStopping("val_loss", patience=epochs, restore_best_weights=True)
    ]
