"""Why containers of TaskExecutors do not come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.gateways import ContainerShape, YarnError
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration
from yarrow.runtime.yarn.resource_manager_web import LeafQueue, Node, ResourceManagerWeb
from yarrow.runtime.yarn.waiting_containers import ContainerExplainer, explain_containers

SHAPE = ContainerShape(1024, 2)
QUEUE = LeafQueue("small", "root.small", "RUNNING", 97.0, 3, 4, 4096, 8)
ROOM = Node("node1:8041", "RUNNING", 0, 0, 4096, 8, ())
FULL = replace(ROOM, address="node2:8041", available_mb=512, available_vcores=1)


def why(*nodes: Node, shape: ContainerShape = SHAPE, queue: LeafQueue | None = QUEUE) -> str:
    return explain_containers(shape, "small", queue, nodes, None)


def test_no_node() -> None:
    assert why(replace(ROOM, state="LOST")) == "YARN has no running node"


def test_no_node_of_the_label() -> None:
    text = why(ROOM, shape=replace(SHAPE, node_label="gpu"))
    assert "'gpu'" in text and "yarn.taskmanager.node-label" in text


def test_above_the_maximum() -> None:
    assert "at most 4096 MB: lower taskmanager.memory.process.size" in why(
        ROOM, shape=ContainerShape(8192, 1)
    )
    assert "at most 8 cores: lower yarn.containers.vcores" in why(ROOM, shape=ContainerShape(1024, 9))


def test_no_headroom_on_any_node() -> None:
    assert why(FULL) == "no node has so much left: the most is 512 MB and 1 cores, on node2:8041"


def test_room_on_a_node_but_not_in_the_queue() -> None:
    text = why(FULL, ROOM)
    assert "queue small" in text and "97 % of the cluster" in text and "4 containers wait" in text


def test_a_queue_in_which_nothing_waits_is_not_called_full() -> None:
    text = why(ROOM, queue=replace(QUEUE, used_percent=31.0, pending_containers=0))
    assert "full" not in text
    assert "no container waits in queue small (31 % of the cluster used)" in text


def test_nothing_known_is_nothing_said() -> None:
    assert why(queue=None) == ""


@dataclass
class Web:
    """A web server of YARN that shows some queues; the application is in the queue `small`."""

    queues: Sequence[LeafQueue]

    def leaf_queues(self) -> Sequence[LeafQueue]:
        return self.queues

    def application(self, application_id: str) -> SimpleNamespace:
        return SimpleNamespace(report=SimpleNamespace(queue="root.small"))


def refusal(monkeypatch: pytest.MonkeyPatch, *queues: LeafQueue) -> str:
    """What is said about a container of 8 GiB."""
    monkeypatch.setattr(HadoopConfiguration, "load", lambda config, environment: None)
    monkeypatch.setattr(ResourceManagerWeb, "of", lambda configuration: Web(queues))
    return ContainerExplainer(Settings(), "application_1_1").refusal(ContainerShape(8192, 1))


def test_a_queue_refuses_what_is_too_large_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "at most 4096 MB" in refusal(monkeypatch, QUEUE)
    assert refusal(monkeypatch, replace(QUEUE, maximum_memory_mb=0)) == ""


def test_a_queue_that_is_not_shown_is_no_queue_without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(YarnError, match="shows no queue 'small'"):
        refusal(monkeypatch, replace(QUEUE, name="other", path="root.other"))


def test_a_scheduler_without_queues_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch) == ""
    assert refusal(monkeypatch, replace(QUEUE, name="", path="", maximum_memory_mb=0)) == ""
