"""Several servers equal one plane under rules that need whole variables, too."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edl_master.core.parameters.layout import Layout
from edl_master.core.parameters.modes import Async, Bounded, Sync, UpdateMode
from edl_master.core.parameters.optimizers import parse_optimizer
from edl_master.core.parameters.shard_layout import shard_layouts

from .test_shard_layout import VARIABLES, check_that_servers_are_one_plane, optimizer

WHOLE = {
    "adafactor": optimizer("Adafactor", learning_rate=0.1, global_clipnorm=0.9),
    "lamb": optimizer("Lamb", learning_rate=0.1, use_ema=True),
    "muon": optimizer("Muon", learning_rate=0.1, clipnorm=0.9),
    "two": parse_optimizer(
        {
            "class_name": "Muon",
            "config": {},
            "others": [
                {"class_name": "Adafactor", "config": {}, "variables": ["fine"]},
                {"class_name": "Adam", "config": {}, "variables": ["bias", "scalar"]},
            ],
        }
    ),
}


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    servers=st.integers(1, 5),
    mode=st.sampled_from([Async(), Bounded(1), Sync(1)]),
    name=st.sampled_from(sorted(WHOLE)),
)
def test_servers_have_whole_variables_where_a_rule_needs_them(
    data: Any, servers: int, mode: UpdateMode, name: str
) -> None:
    check_that_servers_are_one_plane(data, servers, mode, WHOLE[name], (), rtol=2e-5)
    for part in shard_layouts(Layout(VARIABLES), servers, WHOLE[name], mode):
        assert set(part.layout.variables) <= set(VARIABLES)
