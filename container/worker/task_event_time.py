"""TaskTimeReport of a task: event time in its chain, and what may hold it back.

Owner: none (a function); any thread may call it while the task runs. It looks and changes nothing, so a slow slice
does not keep the answer back.
"""

from __future__ import annotations

from typing import cast

from yarrow.container.operators.event_time import WatermarkMaker
from yarrow.container.task.stream_task import StreamTask
from yarrow.runtime.rpc.messages import ChannelTimeReport, OperatorTimeReport, TaskTimeReport


def event_time_of(task: StreamTask) -> TaskTimeReport:
    """The report of a task whose operators are set up."""
    chain, gate = task.chain, task.gate
    operators = tuple(
        OperatorTimeReport(
            name=operator.name,
            watermark=behind.watermark,
            idle=behind.idle,
            generator=(
                cast(WatermarkMaker, operator).generator_report() if operator.makes_watermarks else None
            ),
            holds_time=operator.holds_time,
        )
        for operator, behind in zip(chain.operators, chain.time.behind, strict=True)
    )
    since = task.slice_since
    return TaskTimeReport(
        attempt_id=task.environment.attempt_id,
        now_ms=task.environment.clock.epoch_ms(),
        operators=operators,
        slowest=_slowest(task),
        input_watermark=chain.time.behind[0].input_watermark,
        fires_timers=task.inputs.watermarks.firing,
        blocked=task.slices.blocked,
        slice_ms=0 if since is None else round(1000 * max(0.0, task.slices.seconds() - since)),
        aligns_barriers=gate.barriers.is_aligning,
    )


def _slowest(task: StreamTask) -> ChannelTimeReport | None:
    entry = task.gate.slowest
    if entry is None:
        return None
    return ChannelTimeReport(
        edge=entry.stream,
        producer=entry.subtask,
        watermark=entry.watermark,
        queued=entry.channel.queued,
        held=entry.held,
    )
