"""Why containers of TaskExecutors do not come."""

from __future__ import annotations

from dataclasses import replace

from yarrow.runtime.yarn.gateways import ContainerShape
from yarrow.runtime.yarn.resource_manager_web import LeafQueue, Node
from yarrow.runtime.yarn.waiting_containers import explain_containers

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


def test_nothing_known_is_nothing_said() -> None:
    assert why(queue=None) == ""
