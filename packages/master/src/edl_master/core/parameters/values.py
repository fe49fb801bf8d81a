"""The values of all variables, and the payloads of values and gradients."""

from __future__ import annotations

import numpy as np

from edl_master.core.parameters import arithmetic
from edl_master.core.parameters.arithmetic import Executor
from edl_master.core.parameters.layout import ArenaKey, Arenas, Array, Layout
from edl_master.core.parameters.payload import Payload, PayloadCodec, zeros


class Values:
    """Arenas with the values of a layout's variables.

    Attributes:
        layout: the variables.
        trainable: the arenas that gradients update.
        state: the arenas that state deltas update.
        arenas: both.
        best: copies of ``arenas`` as they were at their best; None: none are kept.
    """

    def __init__(self, layout: Layout, executor: Executor | None) -> None:
        """Make values that are all zero."""
        self.layout = layout
        self.trainable = zeros(layout.sizes, layout.arenas(trainable=True))
        self.state = zeros(layout.sizes, layout.arenas(trainable=False))
        self.arenas: dict[ArenaKey, Array] = {**self.trainable, **self.state}
        self.best: dict[ArenaKey, Array] | None = None
        self._executor = executor
        trainable = [place for place in layout.places if place.variable.trainable]
        state = [place for place in layout.places if not place.variable.trainable]
        self._parameter_codec = PayloadCodec("the parameters", layout.places)
        self._gradient_codec = PayloadCodec("the gradient", trainable)
        self._state_codec = PayloadCodec("the state delta", state)

    def load(self, payload: Payload) -> None:
        """Replace all values.

        Raises:
            PayloadError: the payload has not ``layout.parameter_nbytes`` bytes.
        """
        self._parameter_codec.unpack(payload, self.arenas)

    def store(self, arenas: Arenas, out: Payload) -> None:
        """Copy arenas (these or frozen ones) to a buffer of ``layout.parameter_nbytes``.

        Raises:
            PayloadError: the buffer has another size or is read-only.
        """
        self._parameter_codec.pack(arenas, out, self._executor)

    def gradient(self, payload: Payload) -> Arenas:
        """Return a gradient as arenas.

        Raises:
            PayloadError: the payload has not ``layout.gradient_nbytes`` bytes.
        """
        return self._gradient_codec.view(payload)

    def state_delta(self, payload: Payload | None) -> Arenas | None:
        """Return a state delta as arenas.

        Raises:
            PayloadError: the payload has not ``layout.state_nbytes`` bytes.
        """
        return None if payload is None else self._state_codec.view(payload)

    def move_state(self, delta: Arenas, scale: float) -> None:
        """Add ``scale`` times a state delta."""
        arithmetic.accumulate(self.state, delta, scale, first=False, executor=self._executor)

    def groups(self) -> dict[str, Arenas]:
        """Return the arrays of a snapshot by name: the values, and the best ones if kept."""
        values: dict[str, Arenas] = {"values": self.arenas}
        return values if self.best is None else {**values, "best": self.best}

    def keep_best(self) -> None:
        """Copy the present values to ``best``, in new arrays: views have the former ones."""
        self.best = {key: array.copy() for key, array in self.arenas.items()}

    def restore_best(self) -> None:
        """Make ``best``, which is not None, the present values."""
        assert self.best is not None, "no values are kept"
        for key, array in self.best.items():
            np.copyto(self.arenas[key], array)

    def not_finite(self, gradient: Arenas, state: Arenas | None) -> str:
        """Return the name of the first variable with an infinity or NaN, or an empty string."""
        arenas: dict[ArenaKey, Array] = {**gradient, **(state or {})}
        if arithmetic.all_finite(arenas.values(), self._executor):
            return ""
        return next(
            place.variable.name
            for place in self.layout.places
            if place.arena in arenas
            and not arithmetic.all_finite([arenas[place.arena][place.start : place.stop]], None)
        )

    def warm_up(self) -> None:
        """Compile the loops that are used here, for the dtypes in use."""
        tiny = {key: np.zeros(1, key.dtype) for key in self.arenas}
        arithmetic.accumulate(tiny, tiny, 1.0, first=True, executor=None)
        arithmetic.all_finite(tiny.values(), None)
