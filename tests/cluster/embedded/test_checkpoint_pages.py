"""The pages about checkpoints of a job that runs: every field that Flink's pages have is in the answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.test_savepoints import CHECKPOINTED, rest, submitted, until_completed
from tests.compat.rest.flink_shapes import Shape, flink_paths
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster

pytestmark = pytest.mark.cluster
#: Flink's changelog of states, which there is none of; "buffered", which Flink answers with nothing either.
ABSENT = {
    "state_changelog_enabled",
    "changelog_storage",
    "changelog_periodic_materialization_interval",
    "alignment_buffered",
    "buffered",
}


@pytest.fixture
def cluster() -> Iterator[MiniCluster]:
    # A page of a checkpoint stays however many follow meanwhile.
    with mini_cluster(
        task_executors=1, slots=2, configuration={"web.checkpoints.history": 100_000}
    ) as running:
        yield running


def missing(answer: Any, shape: Shape, at: str) -> Iterator[str]:
    """Fields of the shape that the answer lacks; what is null is not looked into."""
    if isinstance(answer, list) and shape.items is not None:
        for number, item in enumerate(answer):
            yield from missing(item, shape.items, f"{at}[{number}]")
    elif isinstance(answer, dict) and shape.items is not None and not shape.fields:
        for key, item in answer.items():
            yield from missing(item, shape.items, f"{at}.{key}")
    elif isinstance(answer, dict):
        for name, inner in shape.fields.items():
            if name in answer:
                yield from missing(answer[name], inner, f"{at}.{name}")
            elif name not in ABSENT:
                yield f"{at}.{name}"


def test_live_pages_have_flinks_fields(cluster: MiniCluster, tmp_path: Path) -> None:
    client = submitted(cluster, tmp_path, 2, execution__checkpointing__dir=f"{tmp_path}/chk", **CHECKPOINTED)
    latest = until_completed(cluster, client, 2)["latest"]["completed"]
    savepoint = client.trigger_savepoint(f"{tmp_path}/sp").result()
    job = f"/jobs/{client.get_job_id()}"
    shapes = {path.path: path.response for path in flink_paths() if path.method == "get"}
    vertex = next(iter(latest["tasks"]))
    details = f"/checkpoints/details/{latest['id']}"
    found = rest(cluster, f"{job}/checkpoints")
    assert found["latest"]["savepoint"]["external_path"] == savepoint
    assert all(each["external_path"] for each in found["history"] if each["status"] == "COMPLETED")
    pages = {
        "/jobs/{jobid}/checkpoints": found,
        "/jobs/{jobid}/checkpoints/config": rest(cluster, f"{job}/checkpoints/config"),
        "/jobs/{jobid}/checkpoints/details/{checkpointid}": rest(cluster, f"{job}{details}"),
        "/jobs/{jobid}/checkpoints/details/{checkpointid}/subtasks/{vertexid}": rest(
            cluster, f"{job}{details}/subtasks/{vertex}"
        ),
    }
    lacking = [each for path, page in pages.items() for each in missing(page, shapes[path], path)]
    assert lacking == []
    client.cancel().result()
