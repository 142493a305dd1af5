"""Why an application waits, from what YARN's schedulers write."""

from __future__ import annotations

from yarrow.client.yarn.waiting import waiting_reason
from yarrow.runtime.yarn.gateways import ApplicationReport, ContainerShape, FinalStatus, YarnState
from yarrow.runtime.yarn.resource_manager_web import ClusterMetrics, LeafQueue

MASTER = ContainerShape(1024, 1)
QUEUE = LeafQueue("etl", "root.etl", "RUNNING", 93.4, 4, 7, 4096, 4)
METRICS = ClusterMetrics(active_nodes=2, total_mb=8192, available_mb=512, total_vcores=8, available_vcores=3)
AM_LIMIT = (
    "[Sat Nov 21 16:00:00 +0000 2026] Application is added to the scheduler and is not yet activated. Queue's AM"
    " resource limit exceeded.  Details : AM Partition = <DEFAULT_PARTITION>; AM Resource Request = <memory:1024,"
    " vCores:1>; Queue Resource Limit for AM = <memory:768, vCores:1>;"
)
NOT_ASSIGNED = (
    "[Sat Nov 21 16:00:00 +0000 2026] Application is Activated, waiting for resources to be assigned for AM.  Details :"
    " AM Partition = <DEFAULT_PARTITION> ; Queue's Absolute used capacity = 100.0 % ;"
)


def reason(
    diagnostics: str,
    state: YarnState = YarnState.ACCEPTED,
    queue: LeafQueue | None = QUEUE,
    metrics: ClusterMetrics | None = METRICS,
    master: ContainerShape = MASTER,
) -> str:
    report = ApplicationReport(
        "application_1_1", "x", "joe", "etl", state, FinalStatus.UNDEFINED, diagnostics, "", frozenset(), 0
    )
    return waiting_reason(report, master, queue, metrics)


def test_only_accepted_applications_wait_for_yarn() -> None:
    assert reason(NOT_ASSIGNED, YarnState.SUBMITTED) == ""
    assert reason(NOT_ASSIGNED, YarnState.RUNNING) == ""
    assert reason("AM container is launched, waiting for AM container to Register with RM") == ""


def test_the_share_of_application_masters() -> None:
    said = reason(AM_LIMIT)
    assert "Queue etl" in said
    assert "maximum-am-resource-percent" in said
    assert "this user" in reason(AM_LIMIT.replace("Queue's AM", "User's AM"))


def test_a_full_queue() -> None:
    said = reason(NOT_ASSIGNED)
    assert "1024 MiB and 1 cores" in said
    assert "93 %" in said
    assert "7 containers waiting" in said
    assert "512 MiB" in said


def test_a_label_is_named() -> None:
    assert "label 'gpu'" in reason(NOT_ASSIGNED, master=ContainerShape(1024, 1, "gpu"))


def test_a_stopped_queue_is_named() -> None:
    stopped = LeafQueue("etl", "root.etl", "STOPPED", 0.0, 0, 0, 0, 0)
    assert "the queue is STOPPED" in reason("", queue=stopped)


def test_a_cluster_without_nodes() -> None:
    empty = ClusterMetrics(active_nodes=0, total_mb=0, available_mb=0, total_vcores=0, available_vcores=0)
    assert "no active node" in reason("", metrics=empty)
    assert "no active node" in reason("Skipping AM assignment as cluster resource is empty.", metrics=None)


def test_what_is_not_known_is_passed_on() -> None:
    said = reason("[Sat Nov 21 16:00:00 +0000 2026] Waiting for the dentist", queue=None, metrics=None)
    assert said.endswith(": Waiting for the dentist")
    assert reason("", queue=None, metrics=None).endswith("for the ApplicationMaster.")
