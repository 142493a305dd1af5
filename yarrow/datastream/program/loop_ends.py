"""The two ends of a loop in a program: the head behind the stream that is iterated, and the tail behind its feedback.

Owner: the thread that builds the program. What one call shows to be wrong is refused here. Rules of the whole graph
stand in runtime.graph.loops. Must not know streams.
"""

from __future__ import annotations

from typing import Any

import msgspec

from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.program.graph_builder import GraphBuilder, declared
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.iteration_spec import LoopHeadOperator, LoopTailOperator
from yarrow.runtime.graph.operator_spec import StreamKind
from yarrow.runtime.graph.transformations import (
    ChainingStrategy,
    SideOutputTransformation,
    SpecTransformation,
    Transformation,
)

_HEAD = "Iteration"
_TAIL = "Feedback"
#: Id of the side output on which feedback of another type leaves the head.
_FEEDBACK_TAG = "yarrow-feedback"


def begin_loop(builder: GraphBuilder, read: Transformation, max_wait_ms: Any) -> SpecTransformation:
    """The head of a loop. Raises InvalidProgramError for a wait below 0, and for columns."""
    if isinstance(max_wait_ms, bool) or not isinstance(max_wait_ms, int):
        raise TypeError(f"iterate takes milliseconds, not {max_wait_ms!r}")
    if max_wait_ms < 0:
        raise InvalidProgramError(
            f"iterate({max_wait_ms}): the wait is a number of milliseconds from 0 on. With 0 the loop ends when it is"
            " empty."
        )
    if read.output_kind is StreamKind.COLUMNAR:
        raise InvalidProgramError(
            "iterate takes a stream of rows, since records come back one by one: convert it with to_rows() first."
        )
    spec = LoopHeadOperator(loop=0, max_wait_ms=max_wait_ms)
    settings = {"output_type": read.output_type, "chaining": ChainingStrategy.HEAD}
    head = builder.one_input(read, _HEAD, spec, **settings)
    head.spec = msgspec.structs.replace(spec, loop=head.id)
    return head


def feedback_of_type(
    builder: GraphBuilder, head: SpecTransformation, feedback_type: TypeInformation | None
) -> SideOutputTransformation:
    """The feedback of a loop, which leaves its head apart from the rows of the input."""
    made = declared(feedback_type)
    spec_of_type = None if made is None else made.to_spec()
    head.spec = msgspec.structs.replace(head.spec, feedback_tag=_FEEDBACK_TAG, feedback_type=spec_of_type)
    return builder.side_output(head, _FEEDBACK_TAG, made)


def end_loop(
    builder: GraphBuilder, head: SpecTransformation, wanted: TypeInformation | None, feedback: Transformation
) -> None:
    """Adds the tail of a loop. Raises InvalidProgramError for feedback of another type, and for a second tail."""
    fed = feedback.output_type
    if None not in (wanted, fed) and wanted != fed:
        raise InvalidProgramError(
            f"close_with: the feedback has the type {fed}, but the iteration {head.name!r} takes {wanted}. Map it to"
            " that type, or declare its own with with_feedback_type()."
        )
    if head.closed_by is not None:
        raise InvalidProgramError(
            f"close_with: the iteration {head.name!r} is closed. Give close_with the union of all streams that go"
            " round."
        )
    head.closed_by = builder.one_input(
        builder.as_rows(feedback),
        _TAIL,
        LoopTailOperator(loop=head.id),
        parallelism_like=head,
        slots_like=head,
    )
