"""The fake parameter servers keep the rules that the real ones keep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from edl_proto.transport import channels
from edl_proto.transport.parameters import CoordinatorStub, ShardStub
from edl_proto.v1 import task_pb2
from edl_testing.fake_parameter_servers import FakeParameterServers
from edl_testing.parameter_server_conformance import ParameterServerConformance, ServedParameters

PARTS = ((3, 0), (2, 2))
DIM = 2


class TestFakeParameterServers(ParameterServerConformance):
    @pytest.fixture
    def served(self) -> Iterator[ServedParameters]:
        task = task_pb2.TaskKey(type=task_pb2.TRAINING, round=1)
        lease = task_pb2.LeaseRef(task=task, token=7)
        with ExitStack() as opened:
            fakes = FakeParameterServers(PARTS, DIM)
            opened.callback(fakes.close)
            fakes.grant(lease.token)
            coordinator = opened.enter_context(channels.connect(fakes.master.address))
            servers = []
            for fake in fakes.servers:
                channel = opened.enter_context(channels.connect(fake.address))
                servers.append(ShardStub(channel, fake.address))
                opened.callback(servers[-1].close)
            yield ServedParameters(
                CoordinatorStub(coordinator),
                servers,
                PARTS,
                DIM,
                fakes.log.incarnation,
                fakes.log.fingerprint,
                lease,
                fakes.log.freeze,
            )
