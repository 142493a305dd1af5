"""In which order parts of the suite are begun that several processes share: those that take longest come first.

A process that is dealt a long part last works on alone while the others have nothing left to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import pytest


def put_longest_first(
    items: list[pytest.Item], part_of: Callable[[str], str], known: Mapping[str, float], usual: float
) -> None:
    """Sorts by part, and keeps the order within each.

    Args:
        items: collected tests.
        part_of: the part that a test belongs to, by its node id.
        known: seconds of parts that take longer than others with as many tests. A wrong figure costs time alone.
        usual: seconds of any other test.
    """
    count = Counter(part_of(item.nodeid) for item in items)
    seconds = {part: known.get(part, usual * number) for part, number in count.items()}
    # By name where two take as long, so that the tests of a part stay together.
    items.sort(key=lambda item: (-seconds[part_of(item.nodeid)], part_of(item.nodeid)))
