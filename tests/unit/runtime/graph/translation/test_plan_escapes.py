"""Names in plans are escaped as Flink escapes them, since its dashboard puts them into a page as they are."""

from __future__ import annotations

import html

from yarrow.runtime.graph.translation import plan

NAME = "".join(map(chr, range(32, 127))) + "äß€"


def test_names_are_escaped_as_the_library_does() -> None:
    assert plan.escaped(NAME) == html.escape(NAME)
