"""docs/sinks.md: its examples of file formats run, and each writer of files there is stands in it."""

from __future__ import annotations

import inspect
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.unit.datastream.connectors.harness import run
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.formats import avro, csv, parquet
from yarrow.datastream.formats import orc as orc_format
from yarrow.embedded.mini_cluster import mini_cluster

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "sinks.md"
PREAMBLE = """
from yarrow.common import Types
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import FileSink

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
stream = env.from_collection([("Bonn", 12), ("Kiel", 7)], Types.TUPLE([Types.STRING(), Types.LONG()]))
"""


def files(folder: str) -> list[Path]:
    return [path for path in Path(folder).rglob("part-*") if path.is_file()]


def test_every_example_of_a_format_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = re.findall(
        r"```python\n(from yarrow\.datastream\.formats.*?)```", DOCUMENT.read_text(), re.DOTALL
    )
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        with mini_cluster(processes=False):
            for code in examples:
                module = ModuleType("__main__")
                monkeypatch.setitem(sys.modules, "__main__", module)
                exec(compile(PREAMBLE + code + "\nenv.execute()\n", DOCUMENT.name, "exec"), module.__dict__)
        rows = [{"city": "Bonn", "km": 12}, {"city": "Kiel", "km": 7}]
        assert run(FileSource.for_bulk_file_format(avro.AvroBulkFormat(), "out/avro").build()) == rows
        assert [orc.read_table(str(path)).to_pylist() for path in files("out/orc")] == [rows]
        assert [pq.read_table(path).to_pylist() for path in files("out/parquet")] == [rows]
    finally:
        os.chdir(before)


def test_every_maker_of_writers_stands_in_it() -> None:
    text = DOCUMENT.read_text()
    makers = {
        name
        for module in (avro, csv, orc_format, parquet)
        for name, value in vars(module).items()
        if inspect.isclass(value) and name.endswith("Writers")
    }
    assert len(makers) == 5
    assert {name for name in makers if name not in text} == set()
