"""An operator that the engine does not bring: two files, named in no list, run as any other operator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.shipped_numbering import copied, imported
from yarrow.common.typeinfo import Types
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.data_stream import DataStream
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph, encode_job_graph
from yarrow.runtime.graph.operator_spec import OperatorSpec, ShippedOperator
from yarrow.testing.operator_harness import OperatorHarness


class ClaimsEnumerator(OperatorSpec, frozen=True, kw_only=True, tag="claims"):
    """A spec that claims what the master would have to know."""

    has_enumerator = True


class HoldsObject(OperatorSpec, frozen=True, kw_only=True, tag="holds"):
    """A spec with a field that has no encoded form."""

    lock: Any


def shipped_of(graph: JobGraph) -> ShippedOperator:
    (found,) = [each.spec for vertex in graph.vertices for each in vertex.operators if each.spec.is_shipped]
    assert isinstance(found, ShippedOperator)
    return found


def test_it_runs_in_the_harness(tmp_path: Path) -> None:
    copied(tmp_path)
    with imported(tmp_path) as numbering:

        def fragment(rows: DataStream) -> DataStream:
            made: DataStream = numbering.numbered(rows.key_by(lambda row: row[0]), first=5)
            return made.map(lambda found: (found[1], found[0]))

        with OperatorHarness(fragment, types=[Types.TUPLE([Types.STRING(), Types.LONG()])]) as harness:
            harness.push(("a", 1), ("b", 2), ("a", 3))
            harness.push(("a", 4))
            assert harness.output == [(("a", 1), 5), (("b", 2), 5), (("a", 3), 6), (("a", 4), 7)]


def test_the_master_decodes_it_without_its_modules(tmp_path: Path) -> None:
    copied(tmp_path)
    env = StreamExecutionEnvironment.get_execution_environment()
    with imported(tmp_path) as numbering:
        numbering.numbered(env.from_sequence(1, 9).key_by(lambda value: value % 3)).print()
        graph = env.get_job_graph("numbers")
    assert "numbering" in graph.user_code.required_modules
    data = tmp_path / "graph"
    data.write_bytes(encode_job_graph(graph))
    code = (
        "import sys, pathlib\n"
        "from yarrow.runtime.graph.job_graph import decode_job_graph\n"
        f"graph = decode_job_graph(pathlib.Path({str(data)!r}).read_bytes())\n"
        "print([each.name for vertex in graph.vertices for each in vertex.operators if each.spec.is_shipped])\n"
        "assert 'numbering' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "['Numbering']", done.stderr
    spec = shipped_of(decode_job_graph(data.read_bytes()))
    assert (spec.package, spec.module, spec.name) == ("numbering", "numbering", "NumberRecords")
    assert msgspec.msgpack.decode(spec.fields)["operator"] == "number_records"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (ClaimsEnumerator(), r"'Odd': its spec ClaimsEnumerator declares has_enumerator.*Source or Sink"),
        (HoldsObject(lock=object()), r"'Odd': its spec HoldsObject cannot be sent.*pickle"),
    ],
)
def test_what_cannot_travel_is_refused_where_it_is_added(spec: OperatorSpec, message: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_sequence(1, 9)
    with pytest.raises(InvalidProgramError, match=message):
        stream._one_input("Odd", spec, None)


def test_a_spec_that_workers_cannot_import_is_refused() -> None:
    class Local(OperatorSpec, frozen=True, kw_only=True, tag="local"):
        pass

    stream = StreamExecutionEnvironment.get_execution_environment().from_sequence(1, 9)
    with pytest.raises(InvalidProgramError, match=r"'Odd': workers cannot import its spec .*Local.*package"):
        stream._one_input("Odd", Local(), None)
