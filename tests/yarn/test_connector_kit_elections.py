"""The kit of connectors with an election on a real ZooKeeper: a leader that dies or is cut off has a successor."""

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


#: The plans of the suite in which masters are elected.
PLANS = {10: PlanKind.MASTER_CUT_OFF, 11: PlanKind.MASTER_ELECTED}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateZooKeeper]:
    server = PrivateZooKeeper(tmp_path_factory.mktemp("zookeeper") / "zookeeper")
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize(("number", "kind"), PLANS.items())
def test_rows_come_once_though_another_master_is_elected(
    zookeeper: PrivateZooKeeper, tmp_path: Path, number: int, kind: PlanKind
) -> None:
    plan = make_connector_plan(number, elections=True)
    assert plan.kind is kind
    election = high_availability(zookeeper.quorum, f"/kit-{number}", f"file://{tmp_path}/ha", "2 s")
    with mini_cluster() as cluster:
        check_connector(Transactions(tmp_path), plan, cluster, tmp_path / "trial", election)
