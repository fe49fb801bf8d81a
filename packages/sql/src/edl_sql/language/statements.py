"""The statements of ``edl sql``, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from edl_sql.language.columns import ColumnTerm
from edl_sql.language.positions import NOWHERE, SqlPositions


class IfThere(Enum):
    """A choice for TRAIN, if there is a model of its name."""

    REFUSE = auto()
    REPLACE = auto()
    """The model can be used until the new one is trained."""
    KEEP = auto()
    """No new one is trained."""


@dataclass(frozen=True, slots=True)
class Train:
    """``SELECT … TRAIN``.

    Attributes:
        select: the SELECT as it was written.
        model_def: the model, as ``--model-def`` names it.
        params: of the model: WITH.
        settings: options of ``edl train`` by their Python names: ``WITH train.epoch=10``.
        columns: what is learned from, by the target of FOR, which is empty without it; nothing
            for all columns of the SELECT.
        label: the column to learn; empty for the last one.
        into: name of the trained model.
        validation: a SELECT of rows that measure the model in training; empty for none.
        if_there: what is done if there is a model of that name.
        left_out: columns of the SELECT that the statement says not to learn from.
        text: the whole statement.
    """

    select: str
    model_def: str
    into: str
    params: dict[str, object] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)
    columns: dict[str, tuple[ColumnTerm, ...]] = field(default_factory=dict)
    label: str = ""
    validation: str = ""
    if_there: IfThere = IfThere.REFUSE
    left_out: tuple[str, ...] = ()
    text: str = field(default="", compare=False)
    positions: SqlPositions = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Predict:
    """``SELECT … PREDICT``.

    Attributes:
        table: its name, or schema.table.
        column: where the predictions go.
        using: name of the trained model.
        settings: options of ``edl predict`` by their Python names.
    """

    select: str
    table: str
    column: str
    using: str
    settings: dict[str, object] = field(default_factory=dict)
    positions: SqlPositions = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Evaluate:
    """``SELECT … EVALUATE``.

    Attributes:
        model: name of the trained model.
        label: the column with the truth; empty for the one that the model has learned.
        into: the table that gets a row of metrics; empty for none.
        settings: options of ``edl evaluate`` by their Python names.
    """

    select: str
    model: str
    label: str = ""
    into: str = ""
    settings: dict[str, object] = field(default_factory=dict)
    positions: SqlPositions = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Explain:
    """``SELECT … TO EXPLAIN``: how much each column adds to a model's predictions.

    Attributes:
        model: name of the trained model.
        into: the table that gets a row for each column; empty for none.
        of_trees: the model is said to be one of trees.
    """

    select: str
    model: str
    into: str = ""
    of_trees: bool = False
    positions: SqlPositions = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class ShowTrain:
    """``SHOW TRAIN``: how a model was trained."""

    model: str
    positions: SqlPositions = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class ShowModels:
    """``SHOW MODELS``: which models there are."""

    positions: SqlPositions = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class ShowTables:
    """``SHOW TABLES``: which tables a SELECT can name.

    Attributes:
        schema: that has them; empty for the one in use.
    """

    schema: str = ""
    positions: SqlPositions = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Describe:
    """``DESCRIBE m``: what a model has learned, from which columns; or the columns of a table.

    Attributes:
        model: the name as that of a model; empty if no model can have it.
        table: the name as that of a table, or schema.table.
    """

    model: str
    table: str
    positions: SqlPositions = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class DropModel:
    """``DROP MODEL m``: removes a model.

    Attributes:
        if_exists: it is no error if there is none.
    """

    model: str
    if_exists: bool = False
    positions: SqlPositions = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT alone: its rows are shown."""

    select: str
    positions: SqlPositions = field(default=NOWHERE, compare=False)


Statement = (
    Train
    | Predict
    | Evaluate
    | Explain
    | ShowTrain
    | ShowModels
    | ShowTables
    | Describe
    | DropModel
    | Query
)
