"""The standard input function for tables: tf.Example records with one feature per column.

Use it with ``--input-fn sqlflow.elasticdl_input_function``, or by its short name
``sqlflow.input_fn``. A parameter names the column of the label: ``--params "label='price'"``.
"""

import numpy as np
from explanations import MARK
from table_schema import columns_of, label_of

from elasticdl.python.common.constants import Mode

# The label columns to look for if no parameter names one; ``salary`` is that of the example in the
# design documents.
LABELS = ("label", "target", "salary")


def elasticdl_input_function(records, mode=Mode.TRAINING, label=None, schema=None):
    """All columns but the label as features, numbers as float32 and words as bytes.

    Args:
        records: dictionaries of column name to value.
        label: name of the label column; by default that of the schema, or the first of ``LABELS``
            that exists.
        schema: the content of ``schema.json``. The features are then exactly its columns: further
            ones do not count, and a record may lack one only if the training data had NULLs there.

    Returns:
        ({name: values of shape (batch, 1) or (batch, n)}, labels of shape (batch, 1)); labels
        are None in a prediction.

    Raises:
        ValueError: there is no label, or a column is not as in the schema.
    """
    named = label_of(schema, label)
    label = named or next((name for name in LABELS if name in records[0]), None)
    if mode != Mode.PREDICTION and (label is None or label not in records[0]):
        raise ValueError(
            f"which column is the label? {', '.join(sorted(records[0]))}; "
            "say so with --params \"label='...'\""
        )
    if schema:
        features = {known.name: known.values(records) for known in columns_of(schema, label)}
    else:
        names = (name for name in records[0] if name != label)
        features = {name: _column([record[name] for record in records]) for name in names}
    if mode == Mode.PREDICTION:
        return features, None
    return features, _column([record[label] for record in records])


input_fn = elasticdl_input_function


def explain_input(records, mode=Mode.PREDICTION, label=None, schema=None):
    """Return the same features, marked: a model then says what each column adds to a prediction."""
    features, labels = elasticdl_input_function(records, mode, label, schema)
    return features | {MARK: np.zeros((len(records), 1), np.float32)}, labels


def _column(values):
    if isinstance(values[0], bytes):
        return np.array(values, dtype=object).reshape(-1, 1)
    return np.asarray(values, np.float32).reshape(len(values), -1)
