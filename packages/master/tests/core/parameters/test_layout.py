from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edl_master.core.parameters.layout import ArenaKey, Layout, LayoutError, Variable
from edl_master.core.parameters.payload import PayloadError
from edl_master.core.parameters.values import Values

KERNEL = Variable("dense/kernel", (3, 2), "float32", True)
BIAS = Variable("dense/bias", (2,), "float32", True)
MEAN = Variable("norm/moving_mean", (2,), "float32", False)
GAIN = Variable("gain", (), "float64", True)


def test_sizes_in_bytes_follow_from_shapes_and_dtypes() -> None:
    layout = Layout([KERNEL, BIAS, MEAN, GAIN])
    assert layout.gradient_nbytes == (6 + 2) * 4 + 8
    assert layout.state_nbytes == 2 * 4
    assert layout.parameter_nbytes == layout.gradient_nbytes + layout.state_nbytes


def test_variables_of_one_kind_and_dtype_lie_packed_in_one_arena() -> None:
    layout = Layout([KERNEL, MEAN, BIAS, GAIN])
    assert layout.sizes == {
        ArenaKey(True, "float32"): 8,
        ArenaKey(False, "float32"): 2,
        ArenaKey(True, "float64"): 1,
    }
    assert [(place.start, place.stop) for place in layout.places] == [
        (0, 6),
        (0, 2),
        (6, 8),
        (0, 1),
    ]


def test_a_name_used_twice_is_refused() -> None:
    with pytest.raises(LayoutError, match="two variables are named 'dense/bias'"):
        Layout([KERNEL, BIAS, BIAS])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "string"])
def test_a_dtype_that_cannot_be_served_is_refused_by_the_name_of_the_variable(dtype: str) -> None:
    with pytest.raises(LayoutError, match=f"'odd' has dtype {dtype}.*float32 or float64"):
        Layout([KERNEL, Variable("odd", (1,), dtype, False)])


def test_an_unknown_dimension_is_refused() -> None:
    with pytest.raises(LayoutError, match="'dense/kernel' has shape"):
        Layout([Variable("dense/kernel", (None, 3), "float32", True)])


def test_a_layout_has_the_same_fingerprint_when_it_is_made_again() -> None:
    layout = Layout([KERNEL, BIAS, MEAN])
    again = Layout.from_description(layout.describe())
    assert again == layout
    assert again.fingerprint == layout.fingerprint
    # Fixed: it is compared between processes and kept in snapshots.
    assert layout.fingerprint == "81bf043efda4cbf6f5a7b8a9a92e5267"


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ([BIAS, KERNEL, MEAN], "variable 0 is 'dense/kernel' in one and 'dense/bias'"),
        ([KERNEL, BIAS], "'norm/moving_mean' is in only one"),
        ([KERNEL, BIAS, MEAN, GAIN], "'gain' is in only one"),
        (
            [Variable("dense/kernel", (2, 3), "float32", True), BIAS, MEAN],
            r"'dense/kernel' is float32\[3, 2\], trainable in one and float32\[2, 3\]",
        ),
        ([KERNEL, Variable("dense/bias", (2,), "float64", True), MEAN], "'dense/bias' is float32"),
        ([KERNEL, BIAS, Variable("norm/moving_mean", (2,), "float32", True)], "state in one and"),
    ],
)
def test_a_mismatch_names_the_first_variable_that_differs(other: list[Variable], says: str) -> None:
    mine, theirs = Layout([KERNEL, BIAS, MEAN]), Layout(other)
    assert mine.fingerprint != theirs.fingerprint
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(mine.mismatch(theirs))


def test_equal_layouts_have_no_mismatch() -> None:
    assert Layout([KERNEL, BIAS]).mismatch(Layout([KERNEL, BIAS])) is None


variables = st.lists(
    st.tuples(
        st.lists(st.integers(0, 4), max_size=3),
        st.sampled_from(["float32", "float64"]),
        st.booleans(),
    ),
    max_size=8,
).map(lambda drawn: [Variable(f"v{i}", tuple(s), d, t) for i, (s, d, t) in enumerate(drawn)])


def pack(chosen: list[Variable], seed: int) -> tuple[bytes, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=v.shape).astype(v.dtype) for v in chosen]
    return b"".join(part.tobytes() for part in parts), parts


@given(variables, st.integers(0, 9))
def test_values_travel_packed_in_the_order_of_the_variables(
    chosen: list[Variable], seed: int
) -> None:
    values = Values(Layout(chosen), None)
    payload, parts = pack(chosen, seed)
    values.load(payload)
    for place, part in zip(values.layout.places, parts, strict=True):
        stored = values.arenas[place.arena][place.start : place.stop]
        np.testing.assert_array_equal(stored, part.ravel())
    out = bytearray(len(payload))
    values.store(values.arenas, out)
    assert bytes(out) == payload


@given(variables, st.integers(0, 9))
def test_a_gradient_holds_the_trainable_variables_and_a_state_delta_the_others(
    chosen: list[Variable], seed: int
) -> None:
    values = Values(Layout(chosen), None)
    for trainable, read in ((True, values.gradient), (False, values.state_delta)):
        kind = [v for v in chosen if v.trainable == trainable]
        payload, parts = pack(kind, seed)
        arenas = read(payload) or {}
        places = [p for p in values.layout.places if p.variable.trainable == trainable]
        for place, part in zip(places, parts, strict=True):
            found = arenas[place.arena][place.start : place.stop]
            np.testing.assert_array_equal(found, part.ravel())
            assert found.flags.aligned


def test_a_gradient_of_one_dtype_is_read_without_a_copy() -> None:
    values = Values(Layout([KERNEL, MEAN, BIAS]), None)
    payload = np.arange(8, dtype=np.float32)
    (arena,) = values.gradient(payload).values()
    assert np.shares_memory(arena, payload)
    assert not arena.flags.writeable


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_payload_of_another_size_is_an_error_with_both_sizes(size: int) -> None:
    values = Values(Layout([KERNEL, BIAS]), None)
    with pytest.raises(PayloadError, match=f"the gradient must have 32 bytes, not {size}"):
        values.gradient(bytes(size))
    with pytest.raises(PayloadError, match=f"the parameters must have 32 bytes, not {size}"):
        values.load(bytes(size))


def test_values_are_not_written_to_a_read_only_or_scattered_buffer() -> None:
    values = Values(Layout([KERNEL, BIAS]), None)
    with pytest.raises(PayloadError, match="read-only"):
        values.store(values.arenas, bytes(32))
    with pytest.raises(PayloadError, match="not contiguous"):
        values.store(values.arenas, np.zeros(16, np.float32)[::2])


def test_a_large_payload_is_copied_in_pieces_and_stays_what_it_is() -> None:
    layout = Layout([Variable("large", (5_000_001,), "float32", True), GAIN, MEAN])
    given = np.random.default_rng(1).integers(0, 256, layout.parameter_nbytes, np.uint8)
    with ThreadPoolExecutor(2) as pool:
        values = Values(layout, pool)
        values.load(given)
        out = np.zeros_like(given)
        values.store(values.arenas, out)
    np.testing.assert_array_equal(out, given)
