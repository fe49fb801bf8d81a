"""Several servers equal one plane: whatever is pushed, saved, restored and resharded."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_master.core.identifiers import TaskKey, Token, Version, WorkerId
from edl_master.core.parameters.commands import (
    CommitInitialValues,
    CommitPush,
    KeepBestValues,
    RestoreBestValues,
)
from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.layout import Array, Layout, Variable
from edl_master.core.parameters.layout_error import LayoutError
from edl_master.core.parameters.modes import Async, Bounded, Reduction, Sync, UpdateMode
from edl_master.core.parameters.optimizers import Optimizer, parse_optimizer
from edl_master.core.parameters.permits import PermitGranted
from edl_master.core.parameters.push import Gradient, PushOutcome
from edl_master.core.parameters.push_ledger import PushLedger
from edl_master.core.parameters.shard import ProtocolViolation, Shard
from edl_master.core.parameters.shard_layout import (
    NO_SHARD,
    SavedParameters,
    reshard,
    shard_layouts,
    shard_optimizer,
    whole_model,
)
from edl_master.core.parameters.store import ParameterStore
from edl_master.core.parameters.table_spec import Distribution, Initial, TableSpec
from edl_proto.transport.row_placement import server_of

from .planes import ParameterPlane, a_push, row_ids, row_payload, sgd, training_task
from .sharded_plane import ShardedPlane, owner

TABLES = (
    TableSpec("rows", 3, Initial(Distribution.NORMAL, 0.0, 1.0), 7),
    TableSpec("rare", 1, Initial(Distribution.UNIFORM, 0.0, 1.0), 8, min_count=2),
)
VARIABLES = (
    Variable("kernel", (5, 3), "float32", True),
    Variable("bias", (3,), "float32", True),
    Variable("scalar", (), "float32", True),
    Variable("fine", (2, 2), "float64", True),
    Variable("moving_mean", (3,), "float32", False),
)
IDS = st.lists(st.integers(-5, 30), max_size=6, unique=True)


def optimizer(name: str, **config: Any) -> Optimizer:
    return parse_optimizer({"class_name": name, "config": config})


OPTIMIZERS = {
    "sgd": sgd(0.5),
    "momentum": sgd(0.1, momentum=0.9),
    "adam": optimizer("Adam", learning_rate=0.01, clipvalue=0.5),
    "ftrl": optimizer("Ftrl", learning_rate=0.05),
    "decay": parse_optimizer(
        {
            "class_name": "AdamW",
            "config": {"learning_rate": 0.01, "weight_decay": 0.1},
            "excluded_from_weight_decay": ["bias", "rare"],
        }
    ),
}


def store_rows(plane: ParameterStore, table: int, ids: Array) -> Array:
    wanted = row_ids(ids, table)
    buffer = bytearray(plane.rows_nbytes(wanted))
    plane.read_rows(wanted, memoryview(buffer))
    return np.frombuffer(buffer, np.float32).reshape(ids.size, plane.layout.tables[table].dim)


def random_push(model: Layout, task: TaskKey, token: int, index: int, base: int, data: Any) -> Any:
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    gradient = b"".join(
        random.normal(size=v.shape).astype(v.dtype).tobytes()
        for v in model.variables
        if v.trainable
    )
    state = random.normal(size=model.state_nbytes // 4).astype(np.float32).tobytes()
    rows = []
    for number, table in enumerate(model.tables):
        ids = np.array(data.draw(IDS), np.int64)
        values = random.normal(size=(ids.size, table.dim)).astype(np.float32)
        rows.append(row_payload(ids, values, number))
    records = data.draw(st.integers(1, 4))
    return a_push(task, Token(token), index, records, Version(base), gradient, state, tuple(rows))


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    servers=st.integers(1, 5),
    mode=st.sampled_from([Async(), Bounded(1), Sync(1), Sync(2), Sync(3, Reduction.SUM)]),
    name=st.sampled_from(sorted(OPTIMIZERS)),
)
def test_servers_are_one_plane(data: Any, servers: int, mode: UpdateMode, name: str) -> None:
    check_that_servers_are_one_plane(data, servers, mode, OPTIMIZERS[name], TABLES)


CLIPPED = {
    "all together": sgd(0.5, global_clipnorm=0.7),
    "all together, with slots": optimizer("Adam", learning_rate=0.1, global_clipnorm=1.5),
    "each by its own": optimizer("Adam", learning_rate=0.1, clipnorm=0.9),
}


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    servers=st.integers(1, 5),
    mode=st.sampled_from([Async(), Bounded(1), Sync(1)]),
    name=st.sampled_from(sorted(CLIPPED)),
)
def test_servers_clip_by_the_norm_of_the_whole(
    data: Any, servers: int, mode: UpdateMode, name: str
) -> None:
    tables = (TABLES[0], replace(TABLES[1], min_count=1))
    # Sums that were added in another order differ in their last digits.
    check_that_servers_are_one_plane(data, servers, mode, CLIPPED[name], tables, rtol=2e-5)


def of_a_gan(**options: Any) -> Optimizer:
    """One optimizer for two variables, another for the rest."""
    other = {"class_name": "Nadam", "config": options, "variables": ["fine", "bias"]}
    first = {"learning_rate": 0.1, "weight_decay": 0.2}
    excluded = {"excluded_from_weight_decay": ["scalar"]}
    return parse_optimizer({"class_name": "Ftrl", "config": first, **excluded, "others": [other]})


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    servers=st.integers(1, 5),
    mode=st.sampled_from([Async(), Bounded(1), Sync(1)]),
    option=st.sampled_from(["", "clipnorm", "global_clipnorm", "clipvalue"]),
)
def test_servers_apply_the_optimizer_of_each_variable(
    data: Any, servers: int, mode: UpdateMode, option: str
) -> None:
    chosen = of_a_gan(**({option: 0.7} if option else {}))
    rtol = 2e-5 if option == "global_clipnorm" else 0.0
    check_that_servers_are_one_plane(data, servers, mode, chosen, (), rtol)


def check_that_servers_are_one_plane(
    data: Any,
    servers: int,
    mode: UpdateMode,
    chosen: Optimizer,
    tables: tuple[TableSpec, ...],
    rtol: float = 0.0,
) -> None:
    """Play a random history on one plane and on servers, then compare what they hold."""
    model = Layout(VARIABLES, tables)
    one, sharded = play_on_both(data, servers, mode, chosen, model)
    check_equal_state(one, sharded, model, rtol)


def play_on_both(
    data: Any, servers: int, mode: UpdateMode, chosen: Optimizer, model: Layout
) -> tuple[ParameterPlane, ShardedPlane]:
    """Pushes, grants, lagging shards and resharding, with equal answers of both."""
    values = b"".join(np.linspace(-1, 1, v.size).astype(v.dtype).tobytes() for v in model.variables)
    one = ParameterPlane(model, chosen, mode)
    sharded = ShardedPlane(model, chosen, mode, servers)
    assert one.initialize(values)
    sharded.begin(values)
    counts = {training_task(n): 0 for n in range(3)}
    tokens = dict.fromkeys(counts, 0)
    granted = 0
    for _ in range(data.draw(st.integers(5, 25))):
        task = data.draw(st.sampled_from(list(counts)))
        match data.draw(st.sampled_from(["push"] * 5 + ["grant", "lag", "reshard", "flush"])):
            case "push" if tokens[task]:
                asked = one.request_permit(task, Token(tokens[task]))
                assert type(sharded.ledger.request_permit(task, Token(tokens[task]))) is type(asked)
                if not isinstance(asked, PermitGranted):
                    continue
                behind = data.draw(st.integers(0, 2))
                base = max(0, one.version - behind)
                push = random_push(model, task, tokens[task], counts[task], base, data)
                sharded.catch_up()  # what a log index does: the worker's last gradient is applied
                squares = sharded.prepare(push)
                result = one.push(push)
                assert sharded.coordinator.commit(push.claim, squares=squares) == result
                again = sharded.coordinator.commit(push.claim, squares=squares)
                assert again.outcome is not PushOutcome.APPLIED
                counts[task] += result.outcome is PushOutcome.APPLIED
            case "grant":
                granted += 1
                tokens[task] = granted
                assert one.grant(task, Token(granted)) == counts[task]
                assert sharded.ledger.grant(task, Token(granted)) == counts[task]
            case "lag":
                shard = data.draw(st.sampled_from(sharded.shards))
                for command in sharded.log[shard.applied :]:
                    shard.apply(command)
            case "reshard":
                sharded.catch_up()
                sharded = sharded.reshard_to(data.draw(st.integers(1, 5)))
                one = ParameterPlane.restore(one.snapshot(), chosen, mode)  # slots are dropped
            case "flush":
                assert one.flush() == sharded.coordinator.flush()
    return one, sharded


def check_equal_state(
    one: ParameterPlane, sharded: ShardedPlane, model: Layout, rtol: float
) -> None:
    out = bytearray(model.parameter_nbytes)
    one.read_parameters(memoryview(out))
    assert one.version == sharded.ledger.version
    ours, theirs = sharded.values(), bytes(out)
    border = sum(v.nbytes for v in VARIABLES if v.dtype == "float32" and v.trainable)
    for end in (slice(0, border), slice(border, None)):
        dtype = np.float32 if end.start == 0 else np.float64
        found, expected = (np.frombuffer(all_[end], np.uint8) for all_ in (ours, theirs))
        even = found.size // 8 * 8
        np.testing.assert_allclose(
            found[:even].view(dtype), expected[:even].view(dtype), rtol=rtol, atol=rtol / 10
        )
    if not rtol:
        assert ours == theirs
    ids = np.arange(-5, 31)
    near = partial(np.testing.assert_allclose, rtol=rtol, atol=rtol / 10)
    for table in range(len(model.tables)):
        expected = store_rows(one.store, table, ids)
        near(sharded.rows(table, ids), expected)
        near(store_rows(sharded.single().store, table, ids), expected)
    alone = sharded.single()
    assert alone.applied_counts() == one.applied_counts()
    assert alone.version == one.version
    assert sharded.ledger.applied_counts() == one.ledger.applied_counts()
    for shard in sharded.shards:
        shard.store.check_invariants()
        assert shard.store.version == one.version


@pytest.mark.parametrize("servers", [1, 2, 3, 7, 100])
def test_parts_cover_the_model_evenly(servers: int) -> None:
    model = Layout([Variable("big", (1000,), "float32", True), *VARIABLES])
    parts = shard_layouts(model, servers, sgd())
    assert parts[0].start == 0
    assert parts[-1].stop == model.parameter_nbytes
    assert all(a.stop == b.start for a, b in itertools.pairwise(parts))
    sizes = [part.stop - part.start for part in parts]
    assert [part.layout.parameter_nbytes for part in parts] == sizes
    assert max(sizes) - min(sizes) <= 16


def test_variables_stay_whole_where_each_is_clipped_by_its_norm() -> None:
    model = Layout(VARIABLES)
    parts = shard_layouts(model, 3, sgd(clipnorm=1.0))
    names = [v.name for part in parts for v in part.layout.variables]
    assert names == [v.name for v in VARIABLES]


def test_what_parts_cannot_do_is_refused() -> None:
    model, frequent = Layout(VARIABLES, TABLES[:1]), Layout(VARIABLES, TABLES)
    for norm in ("global_clipnorm", "clipnorm"):
        clipped = sgd(**{norm: 1.0})
        with pytest.raises(OptimizerUnsupported, match=f"{norm}.*several gradients"):
            shard_layouts(model, 2, clipped, Sync(2))
        with pytest.raises(OptimizerUnsupported, match=f"{norm}.*frequency"):
            shard_layouts(frequent, 2, clipped)
        shard_layouts(frequent, 1, clipped, Sync(2))
        shard_layouts(model, 2, clipped, Sync(1))
        shard_layouts(Layout(VARIABLES), 2, clipped, Async(local_steps=8))
    shard_layouts(Layout(VARIABLES), 2, sgd(clipnorm=1.0), Sync(2))
    with pytest.raises(LayoutError, match="first"):
        shard_layouts(Layout(VARIABLES[::-1]), 2, sgd())


def test_a_checkpoint_of_a_master_that_served_is_taken_over_by_servers() -> None:
    model = Layout(VARIABLES, TABLES)
    chosen, mode = OPTIMIZERS["adam"], Sync(2)
    one = ParameterPlane(model, chosen, mode)
    one.initialize(bytes(model.parameter_nbytes))
    task = training_task(0)
    one.grant(task, Token(1))
    for index in range(3):  # the last one is accumulated
        gradient = np.full(model.gradient_nbytes, 63, np.uint8).tobytes()
        ids = np.arange(10 * index, 10 * index + 10)
        rows = row_payload(ids, np.ones((10, 3)))
        push = a_push(task, Token(1), index, 2, one.version, gradient, None, (rows,))
        assert one.push(push).outcome is PushOutcome.APPLIED
    saved = [one.snapshot()]
    assert SavedParameters(saved[0]).model() == model
    ledger = PushLedger(mode)
    ledger.restore(reshard(saved, model, NO_SHARD, chosen).meta)
    assert (ledger.version, ledger.applied_counts()) == (
        one.version,
        one.ledger.applied_counts(),
    )
    found = []
    for number, part in enumerate(shard_layouts(model, 3, chosen)):
        mine = reshard(saved, model, part, chosen, owner(number, 3))
        restore = partial(ParameterStore.restore, mine, shard_optimizer(chosen, part.layout), mode)
        plane = restore(layout=part.layout)
        plane.check_invariants()
        found.append(plane.snapshot())
    again = ParameterStore.restore(reshard(found, model, whole_model(model), chosen), chosen, mode)
    again.check_invariants()
    for name, array in one.snapshot().arrays.items():
        if not name.startswith(("tables", "accumulated/tables")):
            np.testing.assert_array_equal(again.snapshot().arrays[name], array)
    ids = np.arange(30)
    np.testing.assert_array_equal(store_rows(again, 0, ids), store_rows(one.store, 0, ids))


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_the_best_values_outlive_servers_and_their_number(servers: int) -> None:
    model = Layout(VARIABLES)
    plane = ShardedPlane(model, sgd(), Async(), servers)
    plane.begin(np.full(model.parameter_nbytes, 60, np.uint8).tobytes())
    best = plane.values()

    def train(plane: ShardedPlane, number: int) -> bytes:
        task, token = training_task(number), Token(number)
        plane.ledger.grant(task, token)
        gradient = np.full(model.gradient_nbytes, 61 + number, np.uint8).tobytes()
        push = a_push(task, token, 0, 1, plane.ledger.version, gradient)
        result = plane.coordinator.commit(push.claim, "", plane.prepare(push))
        assert result.outcome is PushOutcome.APPLIED
        plane.ledger.close(task)
        return plane.values()

    plane.log.append(KeepBestValues())
    assert train(plane, 1) != best
    plane.log.append(KeepBestValues())  # better still
    best = plane.values()
    later = train(plane, 2)
    for other in (1, 2, 3):
        again = plane.reshard_to(other)
        assert again.values() == later != best
        again.ledger.restore_best()
        again.log.append(RestoreBestValues(again.ledger.version))
        assert again.values() == best
    plane.ledger.restore_best()
    plane.log.append(RestoreBestValues(plane.ledger.version))
    assert plane.values() == best


def test_a_shard_that_lacks_a_committed_gradient_is_a_violation() -> None:
    shard = Shard(ParameterStore(Layout(VARIABLES), sgd(), Async()))
    with pytest.raises(ProtocolViolation, match="never prepared"):
        shard.apply(CommitPush(training_task(0), Token(1), 0, 1, Version(1)))


def test_a_repeated_gradient_that_comes_late_does_not_replace_the_next_one() -> None:
    layout = Layout(VARIABLES)
    shard = Shard(ParameterStore(layout, sgd(), Async()))
    shard.propose(WorkerId(0), bytes(layout.parameter_nbytes))
    shard.apply(CommitInitialValues(WorkerId(0)))
    released: list[int] = []

    def prepare(minibatch: int) -> None:
        gradient = shard.store.prepare(Gradient(np.full(layout.gradient_nbytes, 60, np.uint8).data))
        key = (training_task(0), Token(1), minibatch)
        shard.prepare(WorkerId(0), key, gradient, lambda: released.append(minibatch))

    prepare(4)
    prepare(5)
    prepare(4)
    assert released == [4, 4]
    shard.apply(CommitPush(training_task(0), Token(1), 5, 1, Version(1)))
    assert released == [4, 4, 5]


def test_servers_have_even_shares_of_ids() -> None:
    for ids in (np.arange(100_000), np.arange(100_000) << 20, -np.arange(100_000) * 97):
        counts = np.bincount(server_of(ids, 3), minlength=3)
        assert counts.sum() == 100_000
        assert counts.max() < 1.1 * counts.min()
    assert (server_of(np.arange(-50, 50), 1) == 0).all()
