"""Remedies for what people often get wrong when they make tensors of records."""

from __future__ import annotations

import ast
import re
import traceback
from typing import Any

from edl_worker.model_file.explanation import ADAPT, Explanation
from edl_worker.model_file.framework_types import dtype_name

_DENSE = (
    "A tf.io.VarLenFeature gives a sparse tensor: describe the feature with tf.io.FixedLenFeature, "
    "or use tf.sparse.to_dense(x)."
)
_DECODE = (
    "Decode the value first: the bytes of an image with tf.io.decode_png(x, channels=3) or "
    "decode_jpeg, a number written as text with tf.strings.to_number(x)."
)
_TYPES = {"float": "tf.float32", "int64": "tf.int64", "string": "tf.string"}
"""The dtype of each kind of values that a tf.Example has."""

# Pattern of a message, a clearer message (empty: the exception's), and the remedy; {0} is the
# first group of the pattern.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"'record_defaults'.*NOT CONVERTIBLE TO TENSOR",
        "record_defaults has types",
        'Give a value of the type for each column: [0.0] for fractions, [0] for integers, [""] for '
        "texts. tf.constant([], tf.float32) refuses empty cells.",
    ),
    (
        r"tf\.string !=|!= tf\.string|has type string that does not match",
        "a value is text or bytes where a number is needed",
        _DECODE,
    ),
    (
        r"must have the same dtype, got (tf\.\w+) != (tf\.\w+)",
        "",
        "Give both one type, for example tf.cast(x, {1}).",
    ),
    (
        r"values to unpack \(expected (\d+)",
        "",
        "Write as many names before the = as there are values after it. tf.io.decode_csv gives one "
        "value for each entry of record_defaults, which has one entry for each column.",
    ),
    (
        r"Expect (\d+) fields but have (\d+) in record",
        "",
        "Give tf.io.decode_csv one entry of record_defaults for each column. The rows have {1} and "
        "not {0} with this delimiter (field_delim); edl data inspect FILE shows them.",
    ),
    (
        r"no attribute '_(?:name|variant_tensor)'",
        "the function that .flat_map calls returns no dataset",
        "Use .map for a function that returns tensors; one of .flat_map returns a dataset, such as "
        "tf.data.Dataset.from_tensor_slices((x, y)).",
    ),
    (
        r"parameter '\w+' has DataType string not in list",
        "a value is text where a number is needed",
        _DECODE,
    ),
    (
        r"parameter '(?!dense_)(\w+)' has DataType (\w+) not in list of allowed values: (\w+)",
        "the argument {0} has the type {1}, which the operation does not take",
        "Cast it first, for example with tf.cast(x, tf.{2}).",
    ),
    (
        r"StringToNumberOp could not correctly convert string: (.*)",
        "the text '{0}' is no number",
        "Look up the numbers of such texts with a keras.layers.StringLookup, leave these records "
        "out with .filter, or correct the data.",
    ),
    (
        r"Unquoted fields cannot have quotes|Quoted field has to end with quote",
        "tf.io.decode_csv cannot read the record as a row",
        "Records of RecordIO, TFRecord and Parquet files are tf.Examples: read them with "
        "tf.io.parse_single_example(record, features). In a row of CSV, a quote within a field is "
        "written twice, and the field in quotes.",
    ),
    (
        r"Length for attr 'output_(?:shapes|types)' of 0 must be at least",
        "the function that .map calls returns nothing",
        "End this function with return, as in return features, label.",
    ),
    (
        r"Input serialized must be a scalar",
        "tf.io.parse_single_example got a batch of records",
        "Use tf.io.parse_example, which parses all records of a batch, or leave .batch(...) out.",
    ),
    (
        r"'dense_defaults' has DataType (\w+) not in list",
        "no feature of a record has the type {0}",
        "Describe it with tf.int64, tf.float32 or tf.string, and cast the values afterwards: "
        "tf.cast(x, tf.{0}).",
    ),
    (
        r"Attempting to slice scalar input",
        "an index is taken of a single value",
        "A tf.io.FixedLenFeature([], ...) is one value: leave the index out, or describe the "
        "feature with its number of values, [2].",
    ),
    (
        r"slice index (-?\d+) of dimension (\d+) out of bounds",
        "",
        "Indexes begin with 0 and end before the length; edl data inspect FILE shows how many "
        "values a feature has.",
    ),
    (
        r"Unknown image file format",
        "the bytes are not those of an image file",
        "Decode the feature that has the file, and not the record. Bytes of pixels without a "
        "format are read with tf.io.decode_raw(x, tf.uint8); edl data inspect FILE shows features.",
    ),
    (r"'SparseTensor' object is not subscriptable", "a value is a sparse tensor", _DENSE),
    (
        r"'images' contains no shape",
        "the number of dimensions of the image is not known before it is decoded",
        "Write tf.io.decode_image(x, channels=3, expand_animations=False), or decode_jpeg or "
        "decode_png, which yield (height, width, channels).",
    ),
    (
        r"Tensors in list passed to '\w+' of '(?:Pack|ConcatV2)' Op have types \[([\w, ]+)\]",
        "the values of a list that is joined have the types {0}",
        "Give all of them one type: tf.cast(x, tf.float32) for each, or for columns of CSV the "
        "default 0.0 in record_defaults, which also takes whole numbers.",
    ),
    (
        r"Field (\d+) is required but missing",
        "",
        "Give column {0} (the first is 0) a value for empty cells in record_defaults, such as "
        "[0.0], or fill the cell.",
    ),
    (
        r"Feature: (\w+) .*could not be found",
        "",
        "The record has no feature {0}: edl data inspect FILE shows the names that it has. If a "
        "record may lack it, as a row of Parquet lacks a null, give its FixedLenFeature a "
        "default_value. Rows of CSV are read with tf.io.decode_csv instead.",
    ),
    (
        r"Key: (\S+?)(?:, Index: \d+)?\.\s+"
        r"(?:Can't parse serialized Example|Number of \w+ values !=)",
        "the feature {0} has another number of values than the shape of its FixedLenFeature",
        "Give tf.io.FixedLenFeature the shape that {0} has in the records; edl data inspect FILE "
        "shows it.",
    ),
    (
        r"Could not parse example input",
        "the record is no tf.Example",
        "Decode it as it was written: tf.io.decode_raw(record, tf.float32) for the bytes of an "
        "array, tf.io.decode_csv for a row of CSV; tf.io.parse_single_example reads only what "
        "tf.train.Example(...).SerializeToString() has written. edl data inspect FILE shows more.",
    ),
    (
        r"Table not initialized",
        "a lookup layer has no vocabulary",
        "Give each StringLookup, IntegerLookup and TextVectorization its vocabulary when the file "
        "is loaded: vocabulary=[...], or layer.adapt(texts) at module level.",
    ),
    (
        r"(?s)^[^;]*[,\x00-\x1f\ufffd][^;]*; No such file or directory",
        "the records are taken for the names of files",
        "The dataset that the function gets has the records of --data already: leave "
        "TextLineDataset and TFRecordDataset out, and write dataset.map(parse).",
    ),
    (
        r"no attribute '_datatype_enum'",
        "a layer would create its variables in the function, anew for each task",
        "Create and build the layer at the top of the file: adapt it there, or call it once with a "
        "row of data.",
    ),
    (
        r"pass the `bin_boundaries` argument",
        "a Discretization has no boundaries",
        f"{ADAPT} Or give it bin_boundaries=[...].",
    ),
)


_OTHER_TYPE = r"Key: (\S+?)(?:, Index: \d+)?\.\s+Data types don't match\. .*?: (\w+)"
_KEY = re.compile(r"are valid indices, got '(\w+)'")
_FIELD = re.compile(r"Field (\d+) in record \d+ is not a valid (\w+): (.*)")
_NUMBER = r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
_ROWS = "edl data inspect --check FILE finds such rows."


def _correct_field(column: str, kind: str, text: str) -> str:
    """Return what to do about a cell that is no number of the type of its column's default."""
    text, where = text.strip(), f"column {column} (the first is 0)"
    as_text = f'Read {where} as a text, with the default "" in record_defaults, and '
    if re.fullmatch(r"(?i)true|false|yes|no|t|f|y|n", text):
        return f"{as_text}compare it: tf.cast(x == {text!r}, tf.float32)."
    if re.fullmatch(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
        return (
            f"{as_text}remove the thousands separators: "
            'tf.strings.to_number(tf.strings.regex_replace(x, ",", "")). Or write the table '
            "without them."
        )
    if re.fullmatch(r"[+-]?\d+,\d+", text):
        return (
            f"{as_text}replace the decimal comma: "
            'tf.strings.to_number(tf.strings.regex_replace(x, ",", ".")). Or write the table with '
            "decimal points."
        )
    if date := re.match(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}\b", text):
        return (
            f"{as_text}take the numbers of the date: "
            f'tf.strings.to_number(tf.strings.split(x, "{date.group(1)}")). Or write the days '
            "since a date into the table."
        )
    if text.lower() in ("na", "n/a", "null", "none", "nan", "-", "?", "missing", "#n/a"):
        return (
            f"Leave such cells of {where} empty: the default in record_defaults then takes their "
            f"place. {_ROWS}"
        )
    if (number := re.fullmatch(rf"\D{{0,3}}({_NUMBER})\D{{0,4}}", text)) and not re.fullmatch(
        _NUMBER, text
    ):
        return (
            f"{as_text}keep its number, {number.group(1)}: tf.strings.to_number("
            'tf.strings.regex_replace(x, "[^0-9.-]", "")).'
        )
    if re.fullmatch(_NUMBER, text) and kind.startswith("int"):
        return f"Give {where} the default 0.0 in record_defaults: it has fractions."
    return (
        f"{as_text}look its number up, for example with a tf.lookup.StaticHashTable or "
        f"keras.layers.StringLookup; or correct the row. {_ROWS}"
    )


def explain_parsing(error: BaseException, message: str, line: str) -> Explanation | None:
    """Return what an exception means, if it is a known one of a function that parses records.

    Args:
        message: of the exception, as users see it.
        line: of the model file that raised it.
    """
    if isinstance(error, UnicodeDecodeError):
        # TensorFlow's message has a part of the record, and so may not be a text at all.
        message = error.object.decode(errors="replace")
    if (field := _FIELD.search(message)) is not None:
        return Explanation(_correct_field(*field.groups()))
    if (key := _KEY.search(message)) is not None:
        return _explain_key(error, key.group(1), line)
    if "values to unpack" in message and (data := re.search(r"= *(data|inputs)$", line)):
        return Explanation(
            f"{data.group(1)} has the features and labels, and sample weights only if the input "
            f"function yields them: x, y = {data.group(1)}."
        )
    for pattern, clearer, remedy in _KNOWN:
        if (match := re.search(pattern, message)) is not None:
            groups = match.groups()
            return Explanation(remedy.format(*groups), message=clearer.format(*groups))
    if (kinds := re.search(_OTHER_TYPE, message)) is None:
        return _explain_sparse(message, line)
    feature, kind = kinds.groups()
    return Explanation(
        f"Describe it as tf.io.FixedLenFeature(shape, {_TYPES.get(kind, kind)}), and cast the "
        "values afterwards; edl data inspect FILE shows all types.",
        message=f"the feature {feature} has values of the type {kind}",
    )


def _explain_key(error: BaseException, key: str, line: str) -> Explanation:
    """Return what a tensor means that the model file takes for a dictionary."""
    name = next(iter(re.findall(rf"""(\w+)\[["']{key}["']\]""", line)), "")
    if "string" not in dtype_name(_find_local(error, name)):
        return Explanation(
            f"Yield features by their names, {{{key!r}: ...}}, or take columns by their number: "
            f"{name or 'x'}[:, 0].",
            message=f"{name or 'a value'} is one tensor and no dictionary, so it has no {key!r}",
        )
    keys = list(dict.fromkeys(re.findall(r"""\[["'](\w+)["']\]""", line)))
    return Explanation(
        f"For a row of CSV write {', '.join(keys)} = tf.io.decode_csv({name}, [[0.0], ...]), with "
        "one name and one default for each column; for a tf.Example write "
        f"tf.io.parse_single_example({name}, features). Or define input_fn(records), which gets "
        "dictionaries.",
        message=f"{name} is a record as one text, and has no {key!r}",
    )


def _find_local(error: BaseException, name: str) -> Any:
    """Return the value that a name had where an error was raised; None if it had none."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        value = frame.f_locals.get(name)
        if hasattr(value, "dtype"):
            return value
    return None


def _explain_sparse(message: str, line: str) -> Explanation | None:
    if re.search(r"NOT CONVERTIBLE TO TENSOR|SparseTensor\(", message):
        return Explanation(_DENSE, message=_name_sparse(message, line))
    return None


def _name_sparse(message: str, line: str) -> str:
    """Return which value of a list is sparse; empty if that cannot be told."""
    match = re.search(r"have types \[(.*?)\] that", message)
    types = match.group(1).split(", ") if match else []
    at = next((at for at, each in enumerate(types) if "NOT CONVERTIBLE" in each), None)
    if at is None:
        return ""
    try:
        calls = [each for each in ast.walk(ast.parse(line)) if isinstance(each, ast.Call)]
    except SyntaxError:  # a part of a longer expression
        calls = []
    given = [each for call in calls for each in call.args]
    lists = [each.elts for each in given if isinstance(each, ast.List | ast.Tuple)]
    written = next((ast.unparse(each[at]) for each in lists if len(each) == len(types)), "")
    return f"{written or f'value {at + 1} of {len(types)}'} is a sparse tensor"
