"""The kit of connectors with an election on a real ZooKeeper: the leading master dies, the other goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.test_connector_kit import Transactions
from tests.yarn.highly_available import high_availability
from tests.yarn.private_zookeeper import PrivateZooKeeper
from yarrow.embedded.mini_cluster import mini_cluster
from yarrow.testing.connectors import PlanKind, check_connector, make_connector_plan

pytestmark = [pytest.mark.fault, pytest.mark.slow]

#: Of MASTER_ELECTED.
PLAN = 11


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[PrivateZooKeeper]:
    server = PrivateZooKeeper(tmp_path / "zookeeper")
    server.start()
    yield server
    server.stop()


def test_rows_come_once_though_the_leading_master_is_killed(
    zookeeper: PrivateZooKeeper, tmp_path: Path
) -> None:
    plan = make_connector_plan(PLAN, elections=True)
    assert plan.kind is PlanKind.MASTER_ELECTED
    election = high_availability(zookeeper.quorum, "/kit", f"file://{tmp_path}/ha", "2 s")
    with mini_cluster() as cluster:
        check_connector(Transactions(tmp_path), plan, cluster, tmp_path / "trial", election)
