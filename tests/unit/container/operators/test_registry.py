"""The registry of operators: every spec of the engine has one, and a job of rows loads none of columns."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from yarrow.container.operators.base import Operator
from yarrow.container.operators.registry import operator_class, runs
from yarrow.runtime.graph.engine_specs import any_engine_spec
from yarrow.runtime.graph.operator_spec import OperatorSpec, ReduceOperator

#: What encoded JobGraphs hold: a tag that is changed makes those of before unreadable.
TAGS = {
    "aggregate",
    "arrow_aggregate",
    "arrow_to_rows",
    "batch_function",
    "broadcast_process",
    "co_function",
    "co_process",
    "collect",
    "print",
    "process",
    "project",
    "reduce",
    "row_function",
    "rows_to_arrow",
    "shipped",
    "sink_function",
    "sink_writer",
    "source",
    "source_function",
    "timestamps_watermarks",
}


class UnknownOperator(OperatorSpec, frozen=True, kw_only=True, tag="unknown"):
    """A spec that no operator runs."""


def test_tags_of_specs_stay() -> None:
    tags = {kind.__struct_config__.tag for kind in get_args(any_engine_spec())}
    assert tags >= TAGS


@pytest.mark.parametrize("tag", sorted(TAGS - {"shipped"}))
def test_each_spec_of_the_engine_has_an_operator(tag: str) -> None:
    kind = next(each for each in get_args(any_engine_spec()) if each.__struct_config__.tag == tag)
    # The class is found by the spec's, whatever its fields hold.
    spec = kind(**dict.fromkeys(kind.__struct_fields__))
    assert issubclass(operator_class(spec), Operator)


def test_a_spec_without_operator_is_named() -> None:
    with pytest.raises(TypeError, match="no operator runs the spec UnknownOperator"):
        operator_class(UnknownOperator())


def test_a_second_operator_for_a_spec_is_refused() -> None:
    with pytest.raises(TypeError, match=r"ReduceOperator is run by .*ReducingOperator .*Another as well"):

        @runs(ReduceOperator)
        class Another(Operator):
            pass

    reduced = ReduceOperator(function=b"", key_selector=b"")
    assert operator_class(reduced).__name__ == "ReducingOperator"


def test_operators_of_rows_load_nothing_of_columns() -> None:
    code = (
        "import sys\n"
        "import yarrow.container.worker.worker\n"
        "from yarrow.container.operators.registry import import_row_operators, operator_class\n"
        "from yarrow.runtime.graph.connector_spec import PrintOperator\n"
        "import_row_operators()\n"
        "assert operator_class(PrintOperator()).__name__ == 'PrintingOperator'\n"
        "heavy = ('pyarrow.compute', 'polars', 'pandas', 'yarrow.container.operators.columnar.conversions')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
