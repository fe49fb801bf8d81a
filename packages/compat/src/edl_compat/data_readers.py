"""The data readers of ElasticDL: ``from elasticdl.python.data.reader import ...``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from edl_compat.maxcompute import refuse

_DTYPES = {
    "bigint": tf.int64,
    "double": tf.float64,
    "float": tf.float32,
    "int": tf.int32,
    "string": tf.string,
}


class Metadata:
    """What is known about a data set.

    Attributes:
        column_names: names of the columns; None if the records have none.
        column_dtypes: dtype by column, in MaxCompute's words.
    """

    def __init__(
        self,
        column_names: Sequence[str] | None,
        column_dtypes: Mapping[str, str] | None = None,
    ) -> None:
        self.column_names = column_names
        self.column_dtypes = column_dtypes

    def get_tf_dtype_from_maxcompute_column(self, column_name: str) -> tf.DType:
        """Return the dtype of a column.

        Raises:
            ValueError: it is not known.
        """
        if self.column_dtypes is None:
            raise ValueError("the dtypes of the columns are not known")
        dtype = _DTYPES.get(str(self.column_dtypes.get(column_name)).lower())
        if dtype is None:
            raise ValueError(
                f"the column {column_name} has none of the dtypes {', '.join(_DTYPES)}"
            )
        return dtype


class AbstractDataReader(ABC):
    """Reads the records of tasks; see ``custom_data_reader`` in docs/elasticdl.md."""

    def __init__(self, **kwargs: Any) -> None:
        self._options = kwargs

    @abstractmethod
    def read_records(self, task: Any) -> Iterator[Any]:
        """Yield the records ``[task.start, task.end)`` of ``task.shard_name``."""

    @abstractmethod
    def create_shards(self) -> dict[str, tuple[int, int]]:
        """Return start and number of records by shard; edl counts the records itself."""

    @property
    def records_output_types(self) -> Any:
        """The dtype of a record; None means strings."""
        return None

    @property
    def metadata(self) -> Metadata:
        """The argument ``metadata`` of the input function."""
        return Metadata(column_names=None)


class ODPSDataReader(AbstractDataReader):
    """Reads a MaxCompute table; edl refuses it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        refuse(
            "reads MaxCompute tables",
            "Export the table to CSV or RecordIO and give the files as --data.",
        )

    def read_records(self, task: Any) -> Iterator[Any]:
        raise NotImplementedError

    def create_shards(self) -> dict[str, tuple[int, int]]:
        raise NotImplementedError
