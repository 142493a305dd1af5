"""The deciding parts of the control plane do no I/O: they import nothing that could."""

from __future__ import annotations

import ast
import importlib
import inspect

import pytest

PURE = (
    "yarrow.am.checkpoint.cleaner",
    "yarrow.am.checkpoint.completed",
    "yarrow.am.checkpoint.coordinator",
    "yarrow.am.checkpoint.failure_manager",
    "yarrow.am.checkpoint.pending",
    "yarrow.am.checkpoint.plan",
    "yarrow.am.checkpoint.request_decider",
    "yarrow.am.dispatcher.validation",
    "yarrow.am.jobmaster.batch.batch_scheduler",
    "yarrow.am.jobmaster.batch.printed_text",
    "yarrow.am.jobmaster.batch.stage_executions",
    "yarrow.am.jobmaster.links.deployment",
    "yarrow.am.jobmaster.details",
    "yarrow.am.execution.execution_graph",
    "yarrow.am.jobmaster.event_time.watermark_alignment",
    "yarrow.am.jobmaster.scheduling.failover",
    "yarrow.am.jobmaster.scheduling.job_scheduler",
    "yarrow.am.jobmaster.links.operator_events",
    "yarrow.am.jobmaster.scheduling.pending_rescale",
    "yarrow.am.jobmaster.scheduling.regions",
    "yarrow.am.jobmaster.scheduling.recorded_events",
    "yarrow.am.jobmaster.scheduling.replay",
    "yarrow.am.jobmaster.scheduling.restarts",
    "yarrow.am.jobmaster.scheduling.scheduler_events",
    "yarrow.am.jobmaster.scheduling.scheduler_log",
    "yarrow.am.jobmaster.scheduling.scheduler_state",
    "yarrow.am.jobmaster.scheduling.slot_pool",
    "yarrow.am.resourcemanager.resource_tracker",
    "yarrow.am.resourcemanager.shortages",
    "yarrow.am.resourcemanager.slot_events",
    "yarrow.am.resourcemanager.slot_manager",
    "yarrow.am.resourcemanager.slot_matching",
    "yarrow.am.resourcemanager.task_executor_requests",
    "yarrow.am.resourcemanager.task_executor_tracker",
    "yarrow.runtime.rpc.heartbeat",
)
FORBIDDEN = {"asyncio", "threading", "socket", "subprocess", "os", "pathlib", "time", "random", "grpc"}


@pytest.mark.parametrize("name", PURE)
def test_imports_nothing_that_waits_or_writes(name: str) -> None:
    tree = ast.parse(inspect.getsource(importlib.import_module(name)))
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {(node.module or "").partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not imported & FORBIDDEN
    assert not any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(tree))
