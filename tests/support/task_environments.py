"""The environment of a task that no worker runs: for tests of single operators.

Owner: the test's thread. Everything that a test does not name is that of the only subtask of a job without settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yarrow.container.metrics.metric_registry import MetricRegistry
from yarrow.container.operators.base import TaskEnvironment
from yarrow.runtime.common.clock import Clock, ManualClock
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID
from yarrow.runtime.config.settings import Settings


def task_environment(
    clock: Clock | None = None, configuration: Mapping[str, str] | None = None, **changes: Any
) -> TaskEnvironment:
    """The environment with such `changes` of its fields; mails run at once, and nobody hears of messages."""
    clock, configuration = clock or ManualClock(), configuration or {}
    fields: dict[str, Any] = {
        "job_id": JobID("0" * 32),
        "job_name": "job",
        "attempt_id": ExecutionAttemptID("attempt"),
        "task_name": "task",
        "subtask": 0,
        "parallelism": 1,
        "max_parallelism": 128,
        "attempt_number": 0,
        "metrics": MetricRegistry(clock),
        "accumulators": {},
        "object_reuse": False,
        "wake": lambda: None,
        "post": lambda mail: mail(),
        "write_output": lambda text: None,
        "send_operator_event": lambda *event: None,
        "push_collected": lambda message: None,
        "settings": Settings(configuration, "the test"),
        "local_directory": "",
    }
    return TaskEnvironment(clock=clock, configuration=configuration, **(fields | changes))
