"""Several servers are one plane: whatever is pushed, kept, lost and recut, the values are equal."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edl_master.core.identifiers import TaskKey, Token, Version, WorkerId
from edl_master.core.parameters.exchange import GradientPush, PermitGranted, PushKind
from edl_master.core.parameters.faults import LayoutError
from edl_master.core.parameters.following import Follower, ProtocolViolation
from edl_master.core.parameters.keras_config import OptimizerUnsupported
from edl_master.core.parameters.layout import Array, Layout, Variable
from edl_master.core.parameters.leading import LeadingPlane
from edl_master.core.parameters.modes import Async, Bounded, Reduction, Sync, UpdateMode
from edl_master.core.parameters.optimizers import Optimizer, parse_optimizer
from edl_master.core.parameters.orders import Apply, Order
from edl_master.core.parameters.plane import ParameterPlane
from edl_master.core.parameters.sharding import (
    NOTHING,
    Saved,
    cut,
    for_part,
    recut,
    sums_between,
    whole,
)
from edl_master.core.parameters.snapshot import Snapshot
from edl_master.core.parameters.tables.payloads import RowIds, RowPayload
from edl_master.core.parameters.tables.spec import Distribution, Initial, TableSpec
from edl_proto.transport.row_placement import server_of

from .planes import sgd, training_task

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


@dataclass
class Crew:
    """A master and its servers, and what a worker sees of them."""

    model: Layout
    optimizer: Optimizer
    mode: UpdateMode
    servers: int
    orders: list[Order] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parts = cut(self.model, self.servers, self.optimizer, self.mode)
        self.sums = sums_between(self.model, self.servers, self.optimizer, self.mode)
        self.leader = LeadingPlane(
            self.model, self.optimizer, self.mode, self.orders.append, self.sums
        )
        self.followers = [
            Follower(
                ParameterPlane(p.layout, for_part(self.optimizer, p.layout), self.mode),
                self.sums > 0,
            )
            for p in self.parts
        ]

    def begin(self, values: bytes) -> None:
        for part, follower in zip(self.parts, self.followers, strict=True):
            follower.offer(WorkerId(0), values[part.start : part.stop])
        assert self.leader.adopt(WorkerId(0))

    def stage(self, push: GradientPush) -> tuple[float, ...]:
        """Send every server its part; what the master is to know of all."""
        told = []
        gradient, state = bytes(push.gradient), bytes(push.state_delta or b"")
        border = len(gradient)
        for number, (part, follower) in enumerate(zip(self.parts, self.followers, strict=True)):
            mine = state[max(part.start - border, 0) : max(part.stop - border, 0)]
            rows = []
            for payload in push.rows:
                ids = np.frombuffer(payload.ids, np.int64)
                dim = self.model.tables[payload.table].dim
                values = np.frombuffer(payload.values, np.float32).reshape(ids.size, dim)
                here = server_of(ids, self.servers) == number
                rows.append(RowPayload(payload.table, ids[here].copy(), values[here].copy()))
            part_push = GradientPush(
                push.task,
                push.token,
                push.minibatch,
                push.records,
                push.base_version,
                gradient[part.start : part.stop],
                mine if push.state_delta is not None else None,
                tuple(rows),
                push.minibatches,
            )
            assert follower.plane.examine(part_push) == ""
            told.append(follower.squares(part_push))
            follower.stage(WorkerId(push.task.number), part_push)
        return tuple(map(sum, zip(*told, strict=True)))

    def obey(self) -> None:
        """Let every server come as far as the master is."""
        for follower in self.followers:
            for order in self.orders[follower.done :]:
                follower.carry_out(order)

    def values(self) -> bytes:
        self.obey()
        out = bytearray(self.model.parameter_nbytes)
        for part, follower in zip(self.parts, self.followers, strict=True):
            assert follower.plane.version == self.leader.version
            follower.plane.read_parameters(memoryview(out)[part.start : part.stop])
        return bytes(out)

    def rows(self, table: int, ids: Array) -> Array:
        self.obey()
        out = np.empty((ids.size, self.model.tables[table].dim), np.float32)
        for number, follower in enumerate(self.followers):
            here = server_of(ids, self.servers) == number
            wanted = [RowIds(table, ids[here].copy())]
            buffer = bytearray(follower.plane.rows_nbytes(wanted))
            follower.plane.read_rows(wanted, memoryview(buffer))
            out[here] = np.frombuffer(buffer, np.float32).reshape(-1, out.shape[1])
        return out

    def kept(self) -> tuple[Snapshot, list[Snapshot]]:
        leading = self.leader.keep("x", "y")
        snapshots = []
        for follower in self.followers:
            for order in self.orders[follower.done :]:
                kept = follower.carry_out(order)
            assert kept is not None
            snapshots.append(kept.snapshot)
        return leading, snapshots

    def recut_to(self, servers: int) -> Crew:
        """Another crew that goes on from what this one kept."""
        leader, saved = self.kept()
        crew = Crew(self.model, self.optimizer, self.mode, servers)
        assert Saved(leader, tuple(saved)).model() == self.model
        crew.leader.take_up(Saved(leader, tuple(saved)).decided)
        for number, part in enumerate(crew.parts):
            mine = recut(saved, self.model, part, self.optimizer, owner(number, servers))
            crew.followers[number] = Follower(
                ParameterPlane.restore(
                    mine, for_part(self.optimizer, part.layout), self.mode, layout=part.layout
                ),
                crew.sums > 0,
            )
        return crew

    def single(self) -> ParameterPlane:
        """The plane of a master that serves by itself and goes on from what this one kept."""
        _, saved = self.kept()
        one = recut(saved, self.model, whole(self.model), self.optimizer)
        return ParameterPlane.restore(one, self.optimizer, self.mode, layout=self.model)


def owner(number: int, servers: int) -> Any:
    return lambda ids: server_of(ids, servers) == number


def single_rows(plane: ParameterPlane, table: int, ids: Array) -> Array:
    wanted = [RowIds(table, ids)]
    buffer = bytearray(plane.rows_nbytes(wanted))
    plane.read_rows(wanted, memoryview(buffer))
    return np.frombuffer(buffer, np.float32).reshape(ids.size, plane.layout.tables[table].dim)


def a_push(model: Layout, task: TaskKey, token: int, index: int, base: int, data: Any) -> Any:
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
        rows.append(RowPayload(number, ids, values))
    records = data.draw(st.integers(1, 4))
    return GradientPush(
        task, Token(token), index, records, Version(base), gradient, state, tuple(rows)
    )


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


def check_that_servers_are_one_plane(
    data: Any,
    servers: int,
    mode: UpdateMode,
    chosen: Optimizer,
    tables: tuple[TableSpec, ...],
    rtol: float = 0.0,
) -> None:
    model = Layout(VARIABLES, tables)
    values = b"".join(np.linspace(-1, 1, v.size).astype(v.dtype).tobytes() for v in model.variables)
    one = ParameterPlane(model, chosen, mode)
    crew = Crew(model, chosen, mode, servers)
    assert one.initialize(values)
    crew.begin(values)
    counts = {training_task(n): 0 for n in range(3)}
    tokens = dict.fromkeys(counts, 0)
    granted = 0
    for _ in range(data.draw(st.integers(5, 25))):
        task = data.draw(st.sampled_from(list(counts)))
        match data.draw(st.sampled_from(["push"] * 5 + ["grant", "lag", "recut", "flush"])):
            case "push" if tokens[task]:
                asked = one.request_permit(task, Token(tokens[task]))
                assert type(crew.leader.request_permit(task, Token(tokens[task]))) is type(asked)
                if not isinstance(asked, PermitGranted):
                    continue
                behind = data.draw(st.integers(0, 2))
                base = max(0, one.version - behind)
                push = a_push(model, task, tokens[task], counts[task], base, data)
                crew.obey()  # what a mark does: a worker's last gradient is in
                squares = crew.stage(push)
                outcome = one.push(push)
                header = GradientPush(
                    push.task,
                    push.token,
                    push.minibatch,
                    push.records,
                    push.base_version,
                    b"",
                    squares=squares,
                )
                assert crew.leader.push(header) == outcome
                assert crew.leader.push(header).kind is not PushKind.APPLIED
                counts[task] += outcome.kind is PushKind.APPLIED
            case "grant":
                granted += 1
                tokens[task] = granted
                assert one.grant(task, Token(granted)) == counts[task]
                assert crew.leader.grant(task, Token(granted)) == counts[task]
            case "lag":
                follower = data.draw(st.sampled_from(crew.followers))
                for order in crew.orders[follower.done :]:
                    follower.carry_out(order)
            case "recut":
                crew.obey()
                crew = crew.recut_to(data.draw(st.integers(1, 5)))
                one = ParameterPlane.restore(one.snapshot(), chosen, mode)  # slots are dropped
            case "flush":
                assert one.flush() == crew.leader.flush()
    out = bytearray(model.parameter_nbytes)
    assert one.read_parameters(memoryview(out)) == crew.leader.version
    ours, theirs = crew.values(), bytes(out)
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
    for table in range(len(tables)):
        expected = single_rows(one, table, ids)
        near(crew.rows(table, ids), expected)
        near(single_rows(crew.single(), table, ids), expected)
    alone = crew.single()
    assert alone.applied_counts() == one.applied_counts()
    assert alone.version == one.version
    for follower in crew.followers:
        assert follower.plane.applied_counts() == one.applied_counts()


@pytest.mark.parametrize("servers", [1, 2, 3, 7, 100])
def test_parts_cover_the_model_evenly(servers: int) -> None:
    model = Layout([Variable("big", (1000,), "float32", True), *VARIABLES])
    parts = cut(model, servers, sgd())
    assert parts[0].start == 0
    assert parts[-1].stop == model.parameter_nbytes
    assert all(a.stop == b.start for a, b in itertools.pairwise(parts))
    sizes = [part.stop - part.start for part in parts]
    assert [part.layout.parameter_nbytes for part in parts] == sizes
    assert max(sizes) - min(sizes) <= 16


def test_variables_stay_whole_where_each_is_clipped_by_its_norm() -> None:
    model = Layout(VARIABLES)
    parts = cut(model, 3, sgd(clipnorm=1.0))
    names = [v.name for part in parts for v in part.layout.variables]
    assert names == [v.name for v in VARIABLES]


def test_what_parts_cannot_do_is_refused() -> None:
    model, frequent = Layout(VARIABLES, TABLES[:1]), Layout(VARIABLES, TABLES)
    for norm in ("global_clipnorm", "clipnorm"):
        clipped = sgd(**{norm: 1.0})
        with pytest.raises(OptimizerUnsupported, match=f"{norm}.*several gradients"):
            cut(model, 2, clipped, Sync(2))
        with pytest.raises(OptimizerUnsupported, match=f"{norm}.*frequency"):
            cut(frequent, 2, clipped)
        cut(frequent, 1, clipped, Sync(2))
        cut(model, 2, clipped, Sync(1))
        cut(Layout(VARIABLES), 2, clipped, Async(local=True))
    cut(Layout(VARIABLES), 2, sgd(clipnorm=1.0), Sync(2))
    with pytest.raises(LayoutError, match="first"):
        cut(Layout(VARIABLES[::-1]), 2, sgd())


def test_a_checkpoint_of_a_master_that_served_is_taken_over_by_servers() -> None:
    model = Layout(VARIABLES, TABLES)
    chosen, mode = OPTIMIZERS["adam"], Sync(2)
    one = ParameterPlane(model, chosen, mode)
    one.initialize(bytes(model.parameter_nbytes))
    task = training_task(0)
    one.grant(task, Token(1))
    for index in range(3):  # the last one is gathered
        gradient = np.full(model.gradient_nbytes, 63, np.uint8).tobytes()
        ids = np.arange(10 * index, 10 * index + 10)
        rows = RowPayload(0, ids, np.ones((10, 3), np.float32))
        push = GradientPush(task, Token(1), index, 2, one.version, gradient, None, (rows,))
        assert one.push(push).kind is PushKind.APPLIED
    saved = [one.snapshot()]
    assert Saved(saved[0]).model() == model
    leader = LeadingPlane(model, chosen, mode, lambda _: None)
    leader.take_up(recut(saved, model, NOTHING, chosen))
    assert (leader.version, leader.applied_counts()) == (one.version, one.applied_counts())
    found = []
    for number, part in enumerate(cut(model, 3, chosen)):
        mine = recut(saved, model, part, chosen, owner(number, 3))
        restore = partial(ParameterPlane.restore, mine, for_part(chosen, part.layout), mode)
        plane = restore(layout=part.layout)
        plane.check_invariants()
        found.append(plane.snapshot())
    again = ParameterPlane.restore(recut(found, model, whole(model), chosen), chosen, mode)
    again.check_invariants()
    for name, array in one.snapshot().arrays.items():
        if not name.startswith(("tables", "accumulated/tables")):
            np.testing.assert_array_equal(again.snapshot().arrays[name], array)
    ids = np.arange(30)
    np.testing.assert_array_equal(single_rows(again, 0, ids), single_rows(one, 0, ids))


def test_a_server_that_lacks_what_counts_says_so() -> None:
    follower = Follower(ParameterPlane(Layout(VARIABLES), sgd(), Async()))
    with pytest.raises(ProtocolViolation, match="never staged"):
        follower.carry_out(Apply(training_task(0), Token(1), 0, 1, Version(0)))


def test_servers_have_even_shares_of_ids() -> None:
    for ids in (np.arange(100_000), np.arange(100_000) << 20, -np.arange(100_000) * 97):
        counts = np.bincount(server_of(ids, 3), minlength=3)
        assert counts.sum() == 100_000
        assert counts.max() < 1.1 * counts.min()
    assert (server_of(np.arange(-50, 50), 1) == 0).all()
