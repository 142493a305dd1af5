"""docs/sources.md: each of its examples runs, and each source and format there is stands in it."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import socket
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyarrow import orc

from yarrow.common.serialization import DeserializationSchema
from yarrow.datastream import connectors, formats
from yarrow.datastream.connectors import hybrid_source
from yarrow.datastream.connectors.base import Source
from yarrow.datastream.connectors.file_format import FileFormat
from yarrow.datastream.formats.avro import AvroBulkWriters, AvroSchema
from yarrow.embedded.mini_cluster import mini_cluster

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "sources.md"

#: Of each heading what the streams of its examples give, sorted.
EXPECTED: dict[str, list[list[Any]]] = {
    "Collection": [[("be", 2), ("to", 1)]],
    "Sequence": [[1, 2, 3, 4, 5, 6]],
    "Generator": [["reading 0", "reading 1", "reading 2"]],
    "Text files": [["or not to be", "to be"]],
    "CSV files": [[("Ada", 36), ("Bob", 7)]],
    "JSON files": [[("about", 1.5), ("home", 2.0)]],
    "Parquet files": [[("Bonn", 12), ("Kiel", 7)], [7, 12], ["Bonn"], [7, 12]],
    "ORC files": [[("Bonn", 12), ("Kiel", 7)]],
    "Avro files": [[("Bonn", Decimal("12.5")), ("Kiel", Decimal("7.0"))]],
    "One source after another": [["1", "2", "3", "or not to be", "to be"], [1, 2, 3, 4, 5]],
    "Socket": [["a line", "another"]],
    "Source of your own": [[f"page {page} row {row}" for page in range(2) for row in range(2)]],
    "Source function": [[0, 1, 2]],
    "Records that cannot be read": [
        [("visits", 2, b'{"page": 7}')],
        [("parse", "ValueError: invalid literal for int() with base 10: 'two'")],
    ],
    "Rate limits": [[1, 2, 3]],
    "Messages": [["be"], ["+U lamp", "-U cup"], ["shop.proto"]],
}


def examples() -> tuple[str, dict[str, list[str]]]:
    """What all begin with, and the blocks of code by heading."""
    head, *parts = re.split(r"^## (.+)$", DOCUMENT.read_text(), flags=re.MULTILINE)
    blocks = {
        name: re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }
    (preamble,) = re.findall(r"```python\n(.*?)```", head, re.DOTALL)
    return preamble, blocks


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a server that says two lines and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"a line\nanother\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory, with the files that the examples read."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "in").mkdir()
    (folder / "in" / "words.txt").write_text("to be\nor not to be\n")
    (folder / "in" / "people.csv").write_text('name,age\nAda,36\n"Bob",7\n')
    (folder / "in" / "visits.json").write_text(
        '{"page": "home", "seconds": 2}\n{"page": "about", "seconds": 1.5}\n'
    )
    (folder / "in" / "mixed.json").write_text('{"page": "home"}\n{"page": 7}\n{"page": "about"}\n')
    trips = pa.table({"km": [12, 7], "city": ["Bonn", "Kiel"]})
    pyarrow.parquet.write_table(trips, folder / "in" / "trips.parquet")
    orc.write_table(trips, folder / "in" / "trips.orc")
    avro = AvroSchema.parse_string(
        '{"type": "record", "name": "Trip", "fields": [{"name": "city", "type": "string"}, {"name": "km", "type":'
        ' {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 1}}]}'
    )
    with (folder / "in" / "trips.avro").open("wb") as stream:
        writer = AvroBulkWriters.for_generic_record(avro).create(stream)
        for city, km in [("Bonn", "12.5"), ("Kiel", "7")]:
            writer.add_element({"city": city, "km": Decimal(km)})
        writer.finish()
    before = os.getcwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


def test_every_example_runs(folder: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    preamble, blocks = examples()
    found: dict[str, list[list[Any]]] = {}
    with mini_cluster(processes=False):
        for name, codes in blocks.items():
            for code in codes:
                # As if it were the program: classes are pickled from there.
                module = ModuleType("__main__")
                monkeypatch.setitem(sys.modules, "__main__", module)
                module.__dict__["port"] = port
                exec(compile(preamble + code, f"{DOCUMENT.name}: {name}", "exec"), module.__dict__)
                module.__dict__["env"].set_parallelism(1)
                with module.__dict__["stream"].execute_and_collect() as rows:
                    found.setdefault(name, []).append(sorted(rows))
    assert found == EXPECTED


def public_classes(package: ModuleType, *bases: type) -> set[str]:
    """Names of the concrete public classes of these bases in the modules of a package."""
    modules = [
        importlib.import_module(f"{package.__name__}.{info.name}")
        for info in pkgutil.iter_modules(package.__path__)
    ]
    return {
        name
        for module in modules
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, bases) and value.__module__ == module.__name__
        if not inspect.isabstract(value) and not name.startswith("_")
    }


def test_every_source_and_format_stands_in_it() -> None:
    text = DOCUMENT.read_text()
    names = public_classes(connectors, Source) - {"CollectionSource"}
    names |= public_classes(formats, FileFormat, DeserializationSchema)
    names |= public_classes(hybrid_source, Source)
    assert {"FileSource", "HybridSource", "NumberSequenceSource"} < names
    assert "CsvReaderFormat" in names
    assert {name for name in names if name not in text} == set()
