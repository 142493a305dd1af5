"""Why YARN does not grant containers: a sentence from the ResourceManager's web server.

Owner: any thread; `explain_containers` is pure, `ContainerExplainer` blocks for a few reads. It guesses at nothing:
where no number shows a limit, it gives the numbers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.gateways import ContainerShape, YarnError
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration
from yarrow.runtime.yarn.resource_manager_web import ClusterMetrics, LeafQueue, Node, ResourceManagerWeb


@dataclass(frozen=True, slots=True)
class ShapeKeys:
    """The settings that decide the shape of containers."""

    memory: str
    vcores: str


TASK_EXECUTOR_KEYS: Final = ShapeKeys("taskmanager.memory.process.size", "yarn.containers.vcores")
SPARK_DRIVER_KEYS: Final = ShapeKeys("yarn.spark-driver.memory", "yarn.spark-driver.vcores")


def explain_containers(
    shape: ContainerShape,
    queue_name: str,
    queue: LeafQueue | None,
    nodes: Sequence[Node],
    metrics: ClusterMetrics | None,
    keys: ShapeKeys = TASK_EXECUTOR_KEYS,
) -> str:
    """The obstacle in words; the queue's numbers if none is found."""
    running = [node for node in nodes if node.state == "RUNNING"]
    if nodes and not running:
        return "YARN has no running node"
    labelled = [node for node in running if not shape.node_label or shape.node_label in node.labels]
    if shape.node_label and not labelled:
        return (
            f"no running node has the label {shape.node_label!r} (yarn.taskmanager.node-label); label one, or leave the"
            " setting out"
        )
    if queue is not None and (refusal := too_large(shape, queue_name, queue, keys)):
        return refusal
    fitting = [
        node
        for node in labelled
        if node.available_mb >= shape.memory_mb and node.available_vcores >= shape.vcores
    ]
    if labelled and not fitting:
        largest = max(labelled, key=lambda node: node.available_mb)
        return (
            f"no node has so much left: the most is {largest.available_mb} MB and {largest.available_vcores} cores, on"
            f" {largest.address}"
        )
    if queue is not None and queue.pending_containers > 0:
        return (
            f"nodes have room, so that queue {queue_name} or its limit for a user is full:"
            f" {queue.used_percent:.0f} % of the cluster used, {queue.pending_containers} containers waiting"
        )
    if queue is not None:
        return (
            f"nodes have room, and no container waits in queue {queue_name} ({queue.used_percent:.0f} % of the cluster"
            " used). This is so before YARN gets the request, and just after it has granted the request"
        )
    if metrics is not None:
        return f"the cluster has {metrics.available_mb} MB and {metrics.available_vcores} cores left"
    return ""


def too_large(shape: ContainerShape, queue_name: str, queue: LeafQueue, keys: ShapeKeys) -> str:
    """Why the queue never gives such a container; "" = it may."""
    if 0 < queue.maximum_memory_mb < shape.memory_mb:
        return f"queue {queue_name} gives containers of at most {queue.maximum_memory_mb} MB: lower {keys.memory}"
    if 0 < queue.maximum_vcores < shape.vcores:
        return f"queue {queue_name} gives at most {queue.maximum_vcores} cores: lower {keys.vcores}"
    return ""


class ContainerExplainer:
    """Asks the web server that the Hadoop configuration of this container names."""

    def __init__(
        self,
        config: Settings,
        application_id: str,
        keys: ShapeKeys = TASK_EXECUTOR_KEYS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`keys`: the settings that decide the shape in question."""
        self._config = config
        self._application_id = application_id
        self._keys = keys
        self._environment = os.environ if environment is None else environment
        self._web: ResourceManagerWeb | None = None
        self._queue = ""

    def __call__(self, shape: ContainerShape, number: int) -> str:
        """Raises YarnError when the server cannot be asked."""
        web = self._connected()
        name, queue = self._own_queue(web, web.leaf_queues())
        try:
            nodes: Sequence[Node] = web.nodes()
        except YarnError:
            # Not every user may see the nodes.
            nodes = ()
        return explain_containers(shape, name, queue, nodes, web.metrics(), self._keys)

    def refusal(self, shape: ContainerShape) -> str:
        """Why the application's queue never gives such a container; "" = it may, or the scheduler shows no queues.

        Raises YarnError when the server cannot be asked, and when it shows queues without the application's own.
        """
        web = self._connected()
        queues = web.leaf_queues()
        name, queue = self._own_queue(web, queues)
        if queue is not None:
            return too_large(shape, name, queue, self._keys)
        # The FIFO scheduler names none.
        if any(one.name for one in queues):
            raise YarnError(f"YARN's scheduler shows no queue {name!r}, in which this application runs")
        return ""

    def _connected(self) -> ResourceManagerWeb:
        if self._web is None:
            self._web = ResourceManagerWeb.of(HadoopConfiguration.load(self._config, self._environment))
        return self._web

    def _own_queue(
        self, web: ResourceManagerWeb, queues: Sequence[LeafQueue]
    ) -> tuple[str, LeafQueue | None]:
        """Name of the application's queue, and its state among `queues`."""
        if not self._queue:
            self._queue = web.application(self._application_id).report.queue
        name = self._queue.rpartition(".")[2]
        queue = next((one for one in queues if self._queue in (one.path, one.name)), None) or next(
            (one for one in queues if one.name == name), None
        )
        return name, queue
