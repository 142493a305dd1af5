"""The import-linter contract behind the layer table in `.importlinter`.

It looks at direct imports only: what a layer may import is closed under "may import", so a chain of allowed
imports is allowed. Layers that do not appear in each other's list never meet, in either direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def layer_of(module: str, layers: Mapping[str, Iterable[str]]) -> str | None:
    """The first layer with a pattern that matches the module; None when there is none."""
    for layer, patterns in layers.items():
        if any(matches(module, pattern) for pattern in patterns):
            return layer
    return None


def matches(module: str, pattern: str) -> bool:
    """Whether the pattern names the module; `x.**` names x and everything below it."""
    package = pattern.removesuffix(".**")
    return fnmatchcase(module, package) or (package != pattern and fnmatchcase(module, f"{package}.*"))


def parse_table(lines: Iterable[str]) -> dict[str, list[str]]:
    """`name: word word` lines as a table, in their order."""
    table = {}
    for line in lines:
        name, _, words = line.partition(":")
        table[name.strip()] = words.split()
    return table


def violations(
    imports: Iterable[tuple[str, str]], layers: Mapping[str, list[str]], may_import: Mapping[str, list[str]]
) -> list[str]:
    """One sentence for each import that its layer does not allow."""
    found = []
    for importer, imported in imports:
        above, below = layer_of(importer, layers), layer_of(imported, layers)
        if above is None or below is None or above == below:
            continue
        if below not in may_import.get(above, []):
            found.append(f"{importer} ({above}) imports {imported} ({below})")
    return sorted(found)


class OneWayContract(Contract):
    """Every module has a layer, and imports only its own layer and those that the table grants it."""

    layers = fields.ListField(subfield=fields.StringField())
    may_import = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        layers = parse_table(self.layers)  # type: ignore[arg-type]
        may_import = parse_table(self.may_import)  # type: ignore[arg-type]
        own = sorted(module for module in graph.modules if module.split(".")[0] == "yarrow")
        homeless = [module for module in own if layer_of(module, layers) is None]
        direct = [
            (module, imported)
            for module in own
            for imported in graph.find_modules_directly_imported_by(module)
            if imported.split(".")[0] == "yarrow"
        ]
        wrong = violations(direct, layers, may_import)
        return ContractCheck(kept=not wrong and not homeless, metadata={"wrong": wrong, "homeless": homeless})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for module in check.metadata["homeless"]:
            output.print_error(f"{module} has no layer: add it to the table in .importlinter")
        for sentence in check.metadata["wrong"]:
            output.print_error(sentence)
