"""Turns the values that the user set into checked values of all options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edl.core.options.option import Given, Option, Verb
from edl.core.options.table import BY_NAME, options_of
from edl.core.problem import Problem, usage
from edl.core.suggestions import did_you_mean, nearest

EXAMPLES: Mapping[Verb, str] = {
    Verb.TRAIN: (
        "edl train --model-zoo model_zoo --model-def mnist.mnist_functional_api"
        ' --data "train/*.recordio" --output my_model'
    ),
    Verb.EVALUATE: 'edl evaluate --trained-model my_model --data "test/*.recordio"',
    Verb.PREDICT: (
        'edl predict --trained-model my_model --data "test/*.recordio" --output predictions.csv'
    ),
}


def read(verb: Verb, given: Mapping[str, Given]) -> dict[str, Any]:
    """Return the values of all options of ``verb``: checked values where given, otherwise defaults.

    Raises:
        Problem: USAGE; an option does not belong to the verb, its value is wrong, or a required
            option is missing.
    """
    known = {option.name: option for option in options_of(verb)}
    for name, entry in given.items():
        if name not in known:
            raise unknown(name, known, entry.where, verb)
    missing = [option for option in known.values() if option.required and option.name not in given]
    if missing:
        names = ", ".join(option.flag for option in missing)
        plural = "s" if len(missing) > 1 else ""
        raise usage(
            f"edl {verb} needs the option{plural} {names}",
            remedy=f"For example: {EXAMPLES[verb]}",
        )
    values: dict[str, Any] = {}
    for name, option in known.items():
        if name not in given:
            values[name] = option.default
            continue
        values[name] = read_value(option, given[name])
    return values


def read_value(option: Option, entry: Given) -> Any:
    """Return the checked value of one option. Raises: Problem: USAGE."""
    try:
        return option.kind.read(entry.value)
    except ValueError as error:
        is_object = option.name in _OF_MODEL_FILE and not isinstance(entry.value, str | int | float)
        raise usage(
            f"{option.flag}: {error}",
            where=entry.where,
            remedy=f"{_FIT if is_object else ''}{option.help} For example: {option.shown_example}",
        ) from None


_OF_MODEL_FILE = ("dataset_fn", "eval_metrics_fn", "input_fn", "loss", "model_def", "optimizer")
"""Options that name what a model file defines."""
_FIT = "elasticdl.fit(model, x, y) trains a compiled model of a program, with its own objects. "

_OF_TRAINED_MODELS = ("model_zoo", "model_def", "params")

_IN_FILE = "Define {0} = ... in the model file."
_CALLBACK = "Define callbacks = [keras.callbacks.{0}(...)] in the model file."
_OF_KERAS = {
    "validation_split": "Divide the data first: edl data convert FILE --split 0.8 --to DIR; then "
    "name the parts with --data and --validation-data.",
    "model": "elasticdl.fit(model, x, y) trains a compiled model with arrays. Or write the model "
    "into a file, model = keras.Sequential(...), and name its folder with --model-zoo and the "
    "file, without .py, with --model-def.",
    "x": "elasticdl.fit(model, x, y) takes arrays. Or write the values into files first, and name "
    "these with --data.",
    "y": "Write the labels into the files of --data, next to the other values of each record.",
    "steps_per_epoch": "An epoch is one pass over --data: leave it out.",
    "validation_batch_size": "--minibatch-size counts for both: leave it out.",
    "metrics": "Define metrics = [...] in the model file, or name some of Keras with "
    "--eval-metrics-fn.",
    "callbacks": _IN_FILE.format("callbacks"),
    "class_weight": _IN_FILE.format("class_weight"),
    "sample_weight": "Yield the weight of each example after its label: (features, label, weight).",
    "verbose": "--quiet prints errors only.",
    "early_stopping": _CALLBACK.format("EarlyStopping"),
    "patience": _CALLBACK.format("EarlyStopping"),
    "save_best_only": _CALLBACK.format("ModelCheckpoint"),
    "use_multiprocessing": "Leave it out: --num-workers says how many workers train.",
}
"""What to do instead of what fit and compile of Keras take."""


def unknown(name: str, known: Iterable[str], where: str, verb: Verb | None = None) -> Problem:
    """Return the problem of a name that no option has, or no option of this verb."""
    name = name.replace("-", "_")
    flag = "--" + name.replace("_", "-")
    if verb is not None and name in BY_NAME:
        others = ", ".join(f"edl {other}" for other in Verb if other in BY_NAME[name].verbs)
        has_it = (
            "The trained model (--trained-model) contains it. "
            if name in _OF_TRAINED_MODELS
            else ""
        )
        return usage(
            f"edl {verb} has no option {flag}",
            where=where,
            remedy=f"{has_it}The option belongs to {others}.",
        )
    near = nearest(name, (each.replace("-", "_") for each in known))
    remedy = f"edl {verb or 'train'} --help lists all options."
    if name in _OF_KERAS:
        remedy = _OF_KERAS[name]
    elif near:
        remedy = did_you_mean(flag, ["--" + near.replace("_", "-")]) or remedy
    elif verb is Verb.TRAIN:
        of_model = f'Give a parameter of the model file as --params "{name}=VALUE".'
        if name in ("learning_rate", "lr"):
            of_model = "Write --set learning-rate=VALUE."
        remedy = f"{of_model} {remedy}"
    return usage(f"there is no option {flag}", where=where, remedy=remedy)
