"""`yarrow session -q`: shows YARN's resources, for the choice of a session's sizes and queue. It changes nothing.

Owner: the main thread; a few HTTP requests to the ResourceManager, no JVM.
"""

from __future__ import annotations

from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration
from yarrow.runtime.yarn.resource_manager_web import Node, ResourceManagerWeb

_LINE = "+" + "-" * 73 + "+"


def show_resources(config: Settings) -> None:
    """Prints nodes and queues. Raises YarnError if the ResourceManager does not answer."""
    web = ResourceManagerWeb.of(HadoopConfiguration.load(config))
    metrics, nodes, queues = web.metrics(), web.nodes(), web.leaf_queues()
    print(f"NodeManagers in the cluster: {metrics.active_nodes}")
    print(_LINE)
    for node in nodes:
        print("\n".join(_node_lines(node)))
    print(_LINE)
    print(
        f"Total memory {metrics.total_mb} MB ({metrics.available_mb} free),"
        f" total cores {metrics.total_vcores} ({metrics.available_vcores} free)"
    )
    for queue in queues:
        largest = f", containers up to {queue.maximum_memory_mb} MB" if queue.maximum_memory_mb else ""
        cores = f" and {queue.maximum_vcores} cores" if queue.maximum_vcores else ""
        print(
            f"Queue: {queue.path or queue.name} ({queue.state}), used {queue.used_percent:.1f} %,"
            f" {queue.applications} applications{largest}{cores}"
        )


def _node_lines(node: Node) -> list[str]:
    total = node.used_mb + node.available_mb
    labels = f", labels {', '.join(node.labels)}" if node.labels else ""
    return [
        f"| {node.address} ({node.state}{labels}): memory {total} MB, {node.available_mb} MB free,"
        f" {node.available_vcores} cores free, {node.containers} containers"
    ]
