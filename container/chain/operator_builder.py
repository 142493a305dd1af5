"""Turns operator specs into operators: the one place where a spec's kind chooses a class.

Owner: the task thread that deploys. Columnar classes are imported only when a job has one: pyarrow.compute and polars
cost memory.
"""

from __future__ import annotations

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.operators.base import Operator
from yarrow.container.operators.process.broadcast_process import BroadcastProcessingOperator
from yarrow.container.operators.process.process_function import ProcessingOperator
from yarrow.container.operators.rows.keyed_aggregation import FieldAggregation, ReducingOperator
from yarrow.container.operators.rows.row_functions import (
    CoStatelessFunctionOperator,
    ProjectionOperator,
    StatelessFunctionOperator,
)
from yarrow.container.operators.rows.timestamps_and_watermarks import TimestampsAndWatermarks
from yarrow.container.operators.sinks.collecting import CollectingOperator
from yarrow.container.operators.sinks.print_sink import PrintingOperator, SinkFunctionCaller
from yarrow.container.operators.sinks.sink_writing import SinkWritingOperator
from yarrow.container.operators.sources.source_function import SourceFunctionHead
from yarrow.container.operators.sources.source_reader import ReadingSource
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.graph.operator_spec import (
    AggregateOperator,
    ArrowAggregateOperator,
    ArrowToRowsOperator,
    BatchFunctionOperator,
    BroadcastProcessOperator,
    CoFunctionOperator,
    CollectOperator,
    CoProcessOperator,
    OperatorSpec,
    PrintOperator,
    ProcessOperator,
    ProjectOperator,
    ReduceOperator,
    RowFunctionOperator,
    RowsToArrowOperator,
    SinkFunctionOperator,
    SinkWriterOperator,
    SourceFunctionOperator,
    SourceOperator,
    TimestampsAndWatermarksOperator,
    TypeSpec,
)


def _type(spec: TypeSpec) -> TypeInformation | None:
    return None if spec is None else TypeInformation.from_spec(spec)


def build_operator(descriptor: OperatorDescriptor) -> Operator:
    """The operator of a descriptor, not set up yet."""
    name, spec = descriptor.name, descriptor.spec
    output_type = _type(descriptor.output_type)
    input_type = _type(descriptor.input_types[0]) if descriptor.input_types else None
    match spec:
        case SourceOperator():
            return ReadingSource(name, spec)
        case SourceFunctionOperator():
            return SourceFunctionHead(name, spec)
        case RowFunctionOperator():
            return StatelessFunctionOperator(name, spec)
        case ProjectOperator():
            return ProjectionOperator(name, spec)
        case TimestampsAndWatermarksOperator():
            return TimestampsAndWatermarks(name, spec)
        case ProcessOperator():
            return ProcessingOperator.one_input(name, spec)
        case CoProcessOperator():
            return ProcessingOperator.two_inputs(name, spec)
        case BroadcastProcessOperator():
            return BroadcastProcessingOperator(name, spec)
        case CoFunctionOperator():
            return CoStatelessFunctionOperator(name, spec)
        case ReduceOperator():
            return ReducingOperator(name, spec, output_type)
        case AggregateOperator():
            return FieldAggregation(name, spec, output_type)
        case SinkFunctionOperator():
            return SinkFunctionCaller(name, spec)
        case SinkWriterOperator():
            return SinkWritingOperator(name, spec, input_type)
        case PrintOperator():
            return PrintingOperator(name, spec)
        case CollectOperator():
            return CollectingOperator(
                name, spec, descriptor.input_types[0] if descriptor.input_types else None
            )
        case _:
            return _build_columnar(name, spec)


def _build_columnar(name: str, spec: OperatorSpec) -> Operator:
    from yarrow.container.operators.columnar.batch_functions import BatchFunctionCaller
    from yarrow.container.operators.columnar.columnar_aggregation import VectorizedAggregation
    from yarrow.container.operators.columnar.conversions import ArrowToRowsConverter, RowsToArrowConverter

    match spec:
        case BatchFunctionOperator():
            return BatchFunctionCaller(name, spec)
        case ArrowAggregateOperator():
            return VectorizedAggregation(name, spec)
        case RowsToArrowOperator():
            return RowsToArrowConverter(name, spec)
        case ArrowToRowsOperator():
            return ArrowToRowsConverter(name, spec)
        case _:
            raise TypeError(f"operator '{name}': no operator for the spec {type(spec).__name__}")
