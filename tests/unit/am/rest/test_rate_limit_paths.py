"""Paths of rate limits: told, changed by id or uid, and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from httpx import AsyncClient

from tests.unit.am.rest.fakes import JOB, SOURCE, FakeCluster
from tests.unit.am.rest.test_checkpoint_paths import run
from yarrow.common.values.rate_limit import UNLIMITED, RateLimit
from yarrow.runtime.common.ids import JobVertexID, OperatorID
from yarrow.runtime.rpc.messages import OperatorRate

OPERATOR = OperatorID("a" * 32)
PATH = f"/jobs/{JOB}/rate-limits"
RATE = OperatorRate(
    operator_id=OPERATOR,
    vertex_id=JobVertexID(SOURCE),
    name="Source: words",
    uid="words",
    is_source=True,
    counts_bytes=True,
    limit=UNLIMITED,
    subtasks=2,
    sharing_subtasks=2,
)


def test_limits_are_told_and_changed_by_id_and_by_uid(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        cluster.dispatcher.rates[OPERATOR] = RATE
        (told,) = (await client.get(PATH)).json()["operators"]
        assert (told["uid"], told["type"], told["rows-per-second"]) == ("words", "source", None)
        changed = await client.patch(PATH, json={"operators": {"words": {"rows-per-second": 5}}})
        assert changed.status_code == 200
        assert changed.json()["operators"][0]["rows-per-second"] == 5
        limit = {"rows-per-second": None, "bytes-per-second": 1e6}
        assert (await client.patch(PATH, json={"operators": {OPERATOR: limit}})).status_code == 200
        assert cluster.dispatcher.rates[OPERATOR].limit == RateLimit(bytes_per_second=1e6)

    run(tmp_path, body)


def test_wrong_limits_are_refused(tmp_path: Path) -> None:
    async def body(cluster: FakeCluster, client: AsyncClient) -> None:
        cluster.dispatcher.rates[OPERATOR] = RATE
        bodies: list[Any] = [
            {},
            {"operators": {}},
            {"operators": {"words": {"rows-per-second": 0}}},
            {"operators": {"words": {"rows-per-second": "many"}}},
            {"operators": {"words": {"rows": 5}}},
        ]
        for wrong in bodies:
            assert (await client.patch(PATH, json=wrong)).status_code == 400, wrong
        unknown = await client.patch(PATH, json={"operators": {"letters": {"rows-per-second": 5}}})
        assert unknown.status_code == 400 and "it has: words (Source: words)" in unknown.text
        assert cluster.dispatcher.rates[OPERATOR].limit == UNLIMITED

    run(tmp_path, body)
