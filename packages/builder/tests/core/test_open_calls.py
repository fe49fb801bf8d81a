"""How many calls may be open."""

from __future__ import annotations

import pytest

from edl_builder.core.failure import BuilderError
from edl_builder.core.identifiers import Caller
from edl_builder.core.open_calls import OpenCallLimits, OpenCalls

ANN, BOB = Caller("ann"), Caller("bob")


def open_calls() -> OpenCalls:
    return OpenCalls(
        OpenCallLimits(all_callers=6, per_caller=4, per_method=3, methods={"/s/One": 1})
    )


def test_each_limit_refuses_what_is_above_it_and_nothing_else() -> None:
    found = open_calls()
    found.enter(ANN, "/s/One")
    with pytest.raises(BuilderError, match="1 of your calls to One are open; the limit is 1"):
        found.enter(ANN, "/s/One")
    for _ in range(3):
        found.enter(ANN, "/s/Two")
    with pytest.raises(BuilderError, match="4 of your calls are open; the limit is 4"):
        found.enter(ANN, "/s/Three")
    found.enter(BOB, "/s/One")
    found.enter(BOB, "/s/Two")
    with pytest.raises(BuilderError, match="6 calls are open; the limit is 6"):
        found.enter(Caller("eve"), "/s/Two")


def test_who_leaves_makes_room() -> None:
    found = open_calls()
    for _ in range(100):
        found.enter(ANN, "/s/One")
        found.leave(ANN, "/s/One")
    found.enter(ANN, "/s/One")
