"""TFRecord and RecordIO files: their records pass through as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import recordio
from edl.plugins.data import data_files
from edl.plugins.errors import usage
from edl_convert.schema import ColumnType
from edl_convert.source import ConversionOptions


class RecordSource:
    """Files of records that are tf.Examples already, or whatever else their writer made them."""

    def __init__(self, files: Sequence[str], options: ConversionOptions, form: str) -> None:
        if options.columns or options.label:
            raise usage(
                f"{form} records are copied unchanged; --columns and --label do not apply to them",
                where="--columns" if options.columns else "--label",
                remedy="Leave it out.",
            )
        self.name = ", ".join(files)
        self._sources = []
        self.total: int | None = 0
        for file in files:
            try:
                self._sources.append(recordio.open_source(file, format=form))
                self.total += self._sources[-1].count()
            except recordio.RecordError as error:
                raise data_files.record_error(error, file) from None
        self.classes: Mapping[str, int] = {}
        self.image_shape = None
        self.types: Mapping[str, ColumnType] = {}

    def records(self) -> Iterator[bytes]:
        for source in self._sources:
            yield from source.read(0, source.count())
