"""Tickets: good once, soon, and for whom they were issued."""

from __future__ import annotations

import pytest

from edl_proto.identity import tickets
from edl_proto.identity.names import Identity, Role
from edl_proto.identity.tickets import TICKET_BYTES, Tickets

ONE, OTHER = (Identity("w", Role.WORKER, number) for number in (0, 1))


def test_a_ticket_names_its_holder_once() -> None:
    issued = Tickets()
    first, second, third = issued.issue(ONE), issued.issue(OTHER), issued.issue(ONE)
    assert {len(one) for one in (first, second, third)} == {TICKET_BYTES}
    assert [issued.redeem(one) for one in (third, second, first)] == [ONE, OTHER, ONE]
    for void in (first, bytes(TICKET_BYTES), b""):
        with pytest.raises(ValueError, match="no such ticket"):
            issued.redeem(void)


def test_a_ticket_is_shown_soon() -> None:
    now = 100.0
    issued = Tickets(lambda: now)
    old = issued.issue(ONE)
    now += tickets._VALID_S - 1
    young = issued.issue(ONE)
    now += 1
    with pytest.raises(ValueError, match="no such ticket"):
        issued.redeem(old)
    assert issued.redeem(young) == ONE


def test_who_never_shows_tickets_loses_only_its_own() -> None:
    issued = Tickets()
    other = issued.issue(OTHER)
    mine = [issued.issue(ONE) for _ in range(tickets._MAX_PER_CALLER + 2)]
    for void in mine[:2]:
        with pytest.raises(ValueError, match="no such ticket"):
            issued.redeem(void)
    assert {issued.redeem(one) for one in mine[2:]} == {ONE}
    assert issued.redeem(other) == OTHER
