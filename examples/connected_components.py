"""Connected components as a DataSet program: a delta iteration over the vertices whose component has changed.

    python examples/connected_components.py [edges] [vertices]

Each vertex begins as its own component. In each superstep, vertices that have changed tell their neighbours, and take
the least component that they hear of. The last line compares the result with a plain search.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

from yarrow.batch.dataset import DataSet, ExecutionEnvironment
from yarrow.common import Types

#: (vertex, vertex), or (vertex, component)
Pair = tuple[int, int]
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


def edge_of(number: int, vertices: int) -> Pair:
    """An edge of a random graph."""
    chance = random.Random(number)
    return chance.randrange(vertices), chance.randrange(vertices)


class BothWays:
    """An edge of a random graph, in both directions."""

    def __init__(self, vertices: int) -> None:
        self._vertices = vertices

    def __call__(self, number: int) -> list[Pair]:
        one, other = edge_of(number, self._vertices)
        return [(one, other), (other, one)]


def itself(vertex: int) -> Pair:
    """A vertex as its own component."""
    return vertex, vertex


def heard(changed: Pair, edge: Pair) -> Pair:
    """The neighbour of a vertex, with the component that it hears of."""
    return edge[1], changed[1]


def smaller(candidate: Pair, known: Pair) -> Iterator[Pair]:
    """The vertex with its new component, if that is less than the one before."""
    if candidate[1] < known[1]:
        yield candidate


def connected_components(vertices: DataSet, edges: DataSet, supersteps: int = 100) -> DataSet:
    """Each vertex with the least vertex of its component; `edges` go in both directions."""
    begin = vertices.map(itself, PAIR)
    loop = begin.iterate_delta(begin, supersteps, 0).name("connected components")
    candidates = loop.get_workset().join(edges).where(0).equal_to(0).with_(heard, PAIR)
    least = candidates.group_by(0).min_by(1)
    changed = least.join(loop.get_solution_set()).where(0).equal_to(0).with_(smaller, PAIR)
    return loop.close_with(changed, changed)


def plain(vertices: int, edges: list[Pair]) -> dict[int, int]:
    """The same by a search from each vertex."""
    neighbours: dict[int, list[int]] = {}
    for one, other in edges:
        neighbours.setdefault(one, []).append(other)
        neighbours.setdefault(other, []).append(one)
    found: dict[int, int] = {}
    for start in range(vertices):
        waiting = [start]
        while waiting:
            vertex = waiting.pop()
            if vertex not in found:
                found[vertex] = start
                waiting += neighbours.get(vertex, ())
    return found


def main(edges: int = 100_000, vertices: int = 50_000) -> None:
    """Runs the program and the search."""
    env = ExecutionEnvironment.get_execution_environment()
    pairs = env.generate_sequence(0, edges - 1).flat_map(BothWays(vertices), PAIR)
    found: dict[int, int] = dict(
        connected_components(env.generate_sequence(0, vertices - 1), pairs).collect()
    )
    print(f"{len(found)} vertices in {len(set(found.values()))} components")
    expected = plain(vertices, [edge_of(number, vertices) for number in range(edges)])
    print("equal to the plain search" if found == expected else "NOT equal to the plain search")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
