"""A folder is a room: not crowded, never in a circle with another room, and no file in a circle with others.

Imports inside functions and those for types alone count: a reader has to follow them too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache

from grimp import build_graph

from tests.architecture.source_tree import ROOT, engine_files, module_name

MOST_MODULES = 22

#: Rooms with more modules, and how many they have. A number may only become smaller.
CROWDED = {"yarrow.common": 27, "yarrow.datastream": 38, "yarrow.runtime.snapshot": 28}

#: Rooms that still import each other both ways. The list may only become shorter.
TWO_WAY: set[tuple[str, str]] = set()

#: Files that still import each other in a circle. The lists may only become shorter.
CIRCLES: list[set[str]] = [
    # A fluent API: `key_by` of a DataStream makes a KeyedStream, which is a DataStream. docs/design/0020
    # says why the circle stays, and which files left it.
    {
        "yarrow.datastream.broadcast_stream",
        "yarrow.datastream.columnar_keyed_stream",
        "yarrow.datastream.connected_streams",
        "yarrow.datastream.data_stream",
        "yarrow.datastream.keyed_stream",
        "yarrow.datastream.stream_execution_environment",
        "yarrow.datastream.windowed_stream",
    },
]


@cache
def modules() -> Mapping[str, bool]:
    """Each module by its name, and whether it is the `__init__` of a package."""
    return {module_name(path): path.name == "__init__.py" for path in engine_files()}


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """The modules that each module imports, wherever in its text, as the import linter sees them."""
    graph = build_graph("yarrow", cache_dir=None)
    return {module: frozenset(graph.find_modules_directly_imported_by(module)) for module in modules()}


def room(module: str) -> str:
    """The folder of a module; a package's own `__init__` belongs to the package."""
    return module if modules()[module] else module.rpartition(".")[0]


def two_way(pairs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """The pairs of rooms that import each other, each pair once and in the order of the alphabet."""
    arrows = {(first, second) for first, second in pairs if first != second}
    return {(first, second) for first, second in arrows if first < second and (second, first) in arrows}


def circles(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Groups of two or more nodes that reach each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    waiting: set[str] = set()
    found: list[set[str]] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        waiting.add(node)
        for other in graph.get(node, ()):
            if other not in order:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in waiting:
                lowest[node] = min(lowest[node], order[other])
        if lowest[node] == order[node]:
            group = set()
            while node not in group:
                group.add(stack.pop())
            waiting.difference_update(group)
            if len(group) > 1:
                found.append(group)

    for node in graph:
        if node not in order:
            visit(node)
    return found


def test_no_room_is_crowded() -> None:
    sizes = Counter(room(module) for module, is_package in modules().items() if not is_package)
    crowded = {name: size for name, size in sizes.items() if size > MOST_MODULES}
    assert crowded == CROWDED, "divide what has grown; write down what has shrunk"


def test_unit_tests_lie_in_rooms() -> None:
    folders = {
        path.parent.relative_to(ROOT / "tests" / "unit")
        for path in (ROOT / "tests" / "unit").rglob("test_*.py")
    }
    roots = (ROOT, ROOT / "yarrow", ROOT / "tests")
    assert [folder for folder in folders if not any((root / folder).is_dir() for root in roots)] == []


def test_no_two_rooms_import_each_other() -> None:
    arrows = (
        (room(importer), room(imported)) for importer, all_of in imports().items() for imported in all_of
    )
    assert two_way(arrows) == TWO_WAY


def test_no_files_import_each_other_in_a_circle() -> None:
    found = sorted(circles(imports()), key=sorted)
    assert found == sorted(CIRCLES, key=sorted)


def test_parts_of_a_task_do_not_know_the_task() -> None:
    task = "yarrow.container.task.stream_task"
    knowing = {module for module, all_of in imports().items() if task in all_of}
    beside = {module for module in knowing if module.startswith("yarrow.container.task.")}
    assert beside == {"yarrow.container.task.task_builder", "yarrow.container.task.task_thread"}


def test_who_runs_operators_without_a_job_takes_a_fragment() -> None:
    made_by = {
        "yarrow.container.task.task_builder": {
            "yarrow.container.fragment",
            "yarrow.container.sources.source_hosting",
            "yarrow.container.worker.job_tasks",
        },
        "yarrow.container.network.network_environment": {
            "yarrow.container.fragment",
            "yarrow.container.task.task_builder",
            "yarrow.container.worker.job_tasks",
            "yarrow.container.worker.worker",
        },
    }
    for part, makers in made_by.items():
        assert {module for module, all_of in imports().items() if part in all_of} == makers


def test_no_part_of_the_product_stands_on_tools_for_tests() -> None:
    tools = "yarrow.testing"
    users = {
        module
        for module, all_of in imports().items()
        if not module.startswith(tools) and any(each.startswith(tools) for each in all_of)
    }
    assert users == set()


def test_both_ways_and_circles_are_found() -> None:
    assert two_way([("a", "b"), ("b", "a"), ("b", "c"), ("c", "c")]) == {("a", "b")}
    graph = defaultdict(set, {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()})
    assert circles(graph) == [{"a", "b", "c"}]
