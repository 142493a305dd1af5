"""docs/state-machines.md, made from the transition tables.

Owner: none (pure).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from yarrow.am.checkpoint.pending import CHECKPOINT_TRANSITIONS
from yarrow.am.jobmaster.batch.batch_scheduler import BATCH_TRANSITIONS
from yarrow.am.jobmaster.batch.pipeline_scheduler import STAGE_TRANSITIONS
from yarrow.am.resourcemanager.slots import SLOT_TRANSITIONS
from yarrow.container.supervisor.slot_table import SLOT_TRANSITIONS as TASK_EXECUTOR_SLOT_TRANSITIONS
from yarrow.container.task.task_life import TASK_TRANSITIONS
from yarrow.runtime.graph.states import EXECUTION_TRANSITIONS, JOB_TRANSITIONS

S = TypeVar("S", bound=Enum)


def render() -> str:
    """The whole page."""
    sections = [
        ("A job", "The JobMaster makes every transition.", diagram(JOB_TRANSITIONS)),
        (
            "A bounded job, as its BatchScheduler sees it",
            "The phases divide the state RUNNING of the job. ENDING lasts until nothing of the SparkDriver is left.",
            diagram(BATCH_TRANSITIONS),
        ),
        (
            "A stage of a pipeline, as its PipelineScheduler sees it",
            "COMMITTING begins when it is stored that the outputs are moved into place.",
            diagram(STAGE_TRANSITIONS),
        ),
        (
            "An execution: one attempt of one subtask",
            "Workers report states, and the JobMaster decides.",
            diagram(EXECUTION_TRANSITIONS),
        ),
        (
            "A task, as its worker sees it",
            "The stages divide the states INITIALIZING and RUNNING, which the worker reports. A SUSPENDED task waits "
            "for the end of a savepoint that stops the job.",
            diagram(TASK_TRANSITIONS),
        ),
        (
            "A slot, as the SlotManager sees it",
            "UNKNOWN lasts until the next slot report.",
            diagram(SLOT_TRANSITIONS),
        ),
        (
            "A slot, as its TaskExecutor sees it",
            "A slot is FREE again when its worker has ended.",
            diagram(TASK_EXECUTOR_SLOT_TRANSITIONS),
        ),
        (
            "A checkpoint, as its coordinator sees it",
            "Each id ends once, COMPLETED or ABORTED.",
            diagram(CHECKPOINT_TRANSITIONS),
        ),
    ]
    lines = [
        "# State machines",
        "",
        "`python -m tests.support.pages` writes this page from the transition tables. Do not edit it.",
    ]
    for title, note, picture in sections:
        lines += ["", f"## {title}", "", note, "", "```mermaid", picture, "```"]
    return "\n".join(lines) + "\n"


def diagram(transitions: Mapping[S, frozenset[S]]) -> str:
    """The table as a Mermaid state diagram, edges in the order of the enum."""
    lines = ["stateDiagram-v2"]
    for source, targets in transitions.items():
        lines += [f"    {source.name} --> {t.name}" for t in type(source) if t in targets]
        if not targets:
            lines.append(f"    {source.name} --> [*]")
    return "\n".join(lines)
