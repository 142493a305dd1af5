"""Why an application does not run yet, in words that name the setting or the missing resource.

Owner: any thread; pure. It reads diagnostics of YARN's schedulers, and passes unknown ones on.
"""

from __future__ import annotations

import re
from typing import Final

from yarrow.runtime.yarn.gateways import ApplicationReport, ContainerShape, YarnState
from yarrow.runtime.yarn.resource_manager_web import ClusterMetrics, LeafQueue

_QUEUE_AM_LIMIT: Final = re.compile(r"Queue's AM resource limit exceeded|maxAMShare", re.IGNORECASE)
_USER_AM_LIMIT: Final = re.compile(r"User's AM resource limit exceeded", re.IGNORECASE)
_EMPTY_CLUSTER: Final = re.compile(r"cluster resource is empty", re.IGNORECASE)
_LAUNCHED: Final = re.compile(r"AM container is launched", re.IGNORECASE)
_TIMESTAMP: Final = re.compile(r"^\[[^\]]*\]\s*")


def waiting_reason(
    report: ApplicationReport,
    master: ContainerShape,
    queue: LeafQueue | None,
    metrics: ClusterMetrics | None,
) -> str:
    """A sentence about the obstacle of the application; empty if it does not wait for YARN."""
    if report.state is not YarnState.ACCEPTED or _LAUNCHED.search(report.diagnostics):
        return ""
    if (metrics is not None and metrics.active_nodes == 0) or _EMPTY_CLUSTER.search(report.diagnostics):
        return "YARN has no active node: the application waits for a NodeManager."
    if _QUEUE_AM_LIMIT.search(report.diagnostics):
        return (
            f"Queue {report.queue} gives no more memory to ApplicationMasters"
            " (yarn.scheduler.capacity.maximum-am-resource-percent): the application waits until another"
            " there ends."
        )
    if _USER_AM_LIMIT.search(report.diagnostics):
        return (
            f"Queue {report.queue} gives this user no more memory for ApplicationMasters"
            " (yarn.scheduler.capacity.<queue>.user-limit-factor): the application waits until another"
            " application of this user ends."
        )
    return _resources_missing(report, master, queue, metrics)


def _resources_missing(
    report: ApplicationReport, master: ContainerShape, queue: LeafQueue | None, metrics: ClusterMetrics | None
) -> str:
    wanted = f"{master.memory_mb} MiB and {master.vcores} cores for the ApplicationMaster"
    if master.node_label:
        wanted += f" on nodes with the label {master.node_label!r}"
    known = []
    if queue is not None:
        known.append(
            f"queue {report.queue} uses {queue.used_percent:.0f} % of the cluster and has"
            f" {queue.pending_containers} containers waiting"
        )
        if queue.state != "RUNNING":
            known.append(f"the queue is {queue.state}")
    if metrics is not None:
        known.append(
            f"the cluster has {metrics.available_mb} MiB and {metrics.available_vcores} cores free on"
            f" {metrics.active_nodes} nodes"
        )
    if known:
        return f"The application waits for {wanted}: {', '.join(known)}."
    said = (
        _TIMESTAMP.sub("", report.diagnostics.strip().splitlines()[0]) if report.diagnostics.strip() else ""
    )
    return f"The application waits for {wanted}" + (f": {said}" if said else ".")
