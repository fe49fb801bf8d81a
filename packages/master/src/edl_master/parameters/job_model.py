"""The model of a job: the first worker describes it, and those of all others must be the same."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.layout import Layout, Variable
from edl_master.core.parameters.layout_error import LayoutError
from edl_master.core.parameters.modes import Reduction, Replicated, UpdateMode
from edl_master.core.parameters.optimizers import FindRule, find_no_rule, parse_optimizer
from edl_master.core.parameters.shard_layout import SavedParameters
from edl_master.core.parameters.snapshot import SnapshotError
from edl_master.core.parameters.table_spec import TableSpec
from edl_master.parameters.coordinator import Coordinator
from edl_master.parameters.stores import Model, Stores
from edl_proto.errors import EdlError, ErrorCode

_NO_UPDATES = {"class_name": "SGD", "config": {"learning_rate": 0.0}}
"""The optimizer of a store that makes no updates, and keeps no state for them."""

_OTHER_STRATEGY = "its job has trained with another --strategy, and kept other state for it"

MakeMode = Callable[[Reduction, Sequence[TableSpec]], UpdateMode]


class JobModel:
    """Builds the model of one job and has coordinator and stores serve it; thread-safe.

    No method is for a thread that holds the job's lock.

    Args:
        coordinator: decides about the model once it is described.
        stores: apply what the coordinator decides.
        make_mode: how gradients become updates, given how the loss reduces a minibatch, and the
            embedding tables.
        reduction: of the loss, if the user has set it.
        saved: the state to restore; None for a new job.
        on_described: called once there is a model, and has ``warm_up`` called in the background;
            None: the first description compiles everything before it returns.
        find_rule: as for ``parse_optimizer``.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        stores: Stores,
        make_mode: MakeMode,
        reduction: Reduction | None = None,
        saved: SavedParameters | None = None,
        on_described: Callable[[], None] | None = None,
        find_rule: FindRule = find_no_rule,
    ) -> None:
        self._coordinator = coordinator
        self._stores = stores
        self._make_mode = make_mode
        self._reduction = reduction
        self._saved = saved
        self._on_described = on_described or self.warm_up
        self._find_rule = find_rule
        self._describing = threading.Lock()
        self._layout: Layout | None = None

    def describe(
        self,
        variables: tuple[Variable, ...],
        optimizer_json: str,
        reduction: str,
        tables: Callable[[], tuple[TableSpec, ...]] = tuple,
    ) -> tuple[str, bool]:
        """Take the job's model from the first worker; compare the others' with it.

        Args:
            variables: of the worker's model, in wire order.
            optimizer_json: the optimizer as Keras serializes it.
            reduction: of the loss, as the worker has found it; may be empty.
            tables: gives the embedding tables; raises ``LayoutError`` if there cannot be such.

        Returns:
            The layout's fingerprint, and whether initial values are missing.

        Raises:
            EdlError: MODEL_CONTRACT, OPTIMIZER_UNSUPPORTED or SHAPE_MISMATCH.
        """
        try:
            layout = Layout(variables, tables())
        except LayoutError as error:
            raise EdlError(ErrorCode.MODEL_CONTRACT, str(error), where="the model") from error
        with self._describing:
            if self._layout is None:
                self._begin(layout, optimizer_json, reduction)
                self._layout = layout
                self._on_described()
            elif difference := self._layout.mismatch(layout):
                raise EdlError(
                    ErrorCode.SHAPE_MISMATCH,
                    f"this worker's model is not the job's: {difference}",
                    where="the model",
                    remedy="All workers must load the same model file and build it the same way.",
                )
            return layout.fingerprint, not self._coordinator.initialized

    def _begin(self, layout: Layout, optimizer_json: str, reduction: str) -> None:
        with _translate_model_errors():
            reduces = self._reduction or Reduction(reduction or Reduction.MEAN)
            mode = self._make_mode(reduces, layout.tables)
            is_replicated = isinstance(mode, Replicated)  # then workers have the optimizer
            described = _NO_UPDATES if is_replicated else json.loads(optimizer_json)
            optimizer = parse_optimizer(described, self._find_rule)
            if self._saved and is_replicated != was_replicated(self._saved):
                raise SnapshotError(_OTHER_STRATEGY)
            if self._saved and (difference := self._saved.model().mismatch(layout)):
                raise SnapshotError(f"the snapshot is of another model: {difference}")
            model = Model(layout, optimizer, optimizer_json, mode)
            decided = self._stores.begin(model, self._saved)
        self._coordinator.begin(model, decided.meta if decided else None)
        self._saved = None  # its memory is the store's now

    def warm_up(self) -> None:
        """Compile what updates need; it takes seconds, and no lock is held."""
        self._stores.warm_up()


def was_replicated(saved: SavedParameters) -> bool:
    """Return whether the parameters are those of workers that trained in step."""
    return bool(saved.coordinator.meta["mode"]["mode"] == "replicated")


@contextmanager
def _translate_model_errors() -> Iterator[None]:
    """Translate the core's errors about optimizer, mode and checkpoint into errors for workers."""
    try:
        yield
    except OptimizerUnsupported as error:
        raise EdlError(
            ErrorCode.OPTIMIZER_UNSUPPORTED,
            str(error),
            where="the optimizer of the model file",
            remedy=f"Instead: {error.remedy}.",
        ) from error
    except SnapshotError as error:
        raise EdlError(
            ErrorCode.SHAPE_MISMATCH,
            f"the checkpoint does not fit: {error}",
            where="--checkpoint-dir",
            remedy="Use the model file that it was made with, or another directory.",
        ) from error
    except ValueError as error:
        raise EdlError(
            ErrorCode.MODEL_CONTRACT, str(error), where="the optimizer or loss of the model"
        ) from error
