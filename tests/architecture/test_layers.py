"""The layer contract itself can fail: each kind of violation is found, and what is allowed is not."""

from __future__ import annotations

import ast
import configparser

import pytest

from tests.architecture.one_way import layer_of, parse_table, violations
from tests.architecture.source_tree import ROOT, engine_files, module_name, parse, walk


def _table() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    section = config["importlinter:contract:layers"]
    return (
        parse_table(section["layers"].strip().splitlines()),
        parse_table(section["may_import"].strip().splitlines()),
    )


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("yarrow.runtime.graph.specs", "yarrow.common.types", True),
        ("yarrow.common.types", "yarrow.runtime.graph.specs", False),
        ("yarrow.datastream.functions", "yarrow.datastream.state", True),
        ("yarrow.datastream.functions", "yarrow.datastream.data_stream", False),
        ("yarrow.container.task.chain", "yarrow.datastream.functions", True),
        ("yarrow.container.task.chain", "yarrow.datastream.data_stream", False),
        ("yarrow.container.task.chain", "yarrow.am.dispatcher", False),
        ("yarrow.am.dispatcher", "yarrow.container.worker.worker", False),
        ("yarrow.datastream.data_stream", "yarrow.runtime.graph.specs", True),
        ("yarrow.datastream.data_stream", "yarrow.container.worker.worker", False),
        ("yarrow.datastream.connectors.files", "yarrow.datastream.connectors.base", True),
        ("yarrow.datastream.connectors.files", "yarrow.datastream.data_stream", False),
        ("yarrow.cli.main", "yarrow.am.dispatcher", True),
        ("yarrow.am.dispatcher", "yarrow.cli.main", False),
    ],
)
def test_table_decides(importer: str, imported: str, allowed: bool) -> None:
    layers, may_import = _table()
    assert (violations([(importer, imported)], layers, may_import) == []) is allowed


def test_every_module_has_a_layer() -> None:
    layers, _ = _table()
    homeless = [name for path in engine_files() if layer_of(name := module_name(path), layers) is None]
    assert not homeless, f"add these to the table in .importlinter: {homeless}"


def test_the_product_imports_no_test_and_no_benchmark() -> None:
    found = [
        f"{module_name(path)} imports {imported}"
        for path in engine_files()
        for node in walk(parse(path))
        for imported in _imported(node)
        if imported.partition(".")[0] in ("tests", "bench")
    ]
    assert not found, f"the wheel has neither: {found}"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
