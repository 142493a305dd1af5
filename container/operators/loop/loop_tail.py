"""LoopTail: sends rows back to the head of its loop, and tells the head where barriers and markers stand among them.

Owner: the task thread. Event time ends here: the head has that of its other inputs. It never waits for the head.
"""

from __future__ import annotations

import logging
from typing import Any, Self, cast

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.freezing import generate_fixed
from yarrow.container.network.feedback.feedback_channel import FeedbackChannel
from yarrow.container.operators.base import Emit, declared_type, input_type_of
from yarrow.container.operators.bulk_row_operator import BulkRowOperator
from yarrow.container.operators.registry import runs
from yarrow.runtime.data.elements import LoopMarker, RowBatch
from yarrow.runtime.graph.iteration_spec import LoopTailOperator
from yarrow.runtime.graph.job_graph import OperatorDescriptor

_logger = logging.getLogger(__name__)


@runs(LoopTailOperator)
class LoopTail(BulkRowOperator):
    """The tail of a loop in one subtask; a LoopEnd."""

    is_loop_end = True

    @classmethod
    def of(cls, descriptor: OperatorDescriptor) -> Self:
        spec = cast(LoopTailOperator, descriptor.spec)
        return cls(descriptor.name, spec, declared_type(input_type_of(descriptor)))

    def __init__(self, name: str, spec: LoopTailOperator, input_type: TypeInformation | None) -> None:
        super().__init__(name)
        self._loop = spec.loop
        self._type = input_type
        self._channel: FeedbackChannel | None = None

    @property
    def closes_loop(self) -> int:
        return self._loop

    def open(self) -> None:
        self._channel = self.context.environment.loops.acquire(self._loop)

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            if channel.dropped_rows:
                _logger.warning(
                    "operator '%s': %d records came back after the loop had ended, and were dropped. Timers of"
                    " processing time in the loop may make such records: give iterate() a longer wait.",
                    self.name,
                    channel.dropped_rows,
                )
            self.context.environment.loops.release(self._loop)

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        # The row leaves the chain: its function may change it afterwards.
        fixed = generate_fixed(code, value, self._type, self.context.environment.object_reuse)
        super().generate(code, fixed, timestamp, emit)

    def take_rows(self, rows: list[Any], timestamps: list[int | None] | None) -> None:
        assert self._channel is not None
        self._channel.put(RowBatch(rows, timestamps))

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self.end_of_chunk()
        if self._channel is not None:
            self._channel.put_barrier(checkpoint_id)

    def return_marker(self, marker: LoopMarker) -> None:
        """Sends a marker back to the head, behind all rows."""
        self.end_of_chunk()
        if self._channel is not None:
            self._channel.put_marker(marker)
