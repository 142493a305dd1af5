"""Callbacks are given to constructors: what is set on an object later, a reader of its class does not find."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.source_tree import engine_files, module_name, parse, walk

#: Modules that set a callback of another object. The list may only shrink.
SET_LATER = {
    # Channels are there before the task whose inputs they feed.
    "yarrow.container.task.task_inputs",
}


@pytest.mark.slow
def test_no_callback_is_set_by_attribute() -> None:
    found = set()
    for path in engine_files():
        for node in walk(parse(path)):
            for target in node.targets if isinstance(node, ast.Assign) else ():
                if (
                    isinstance(target, ast.Attribute)
                    and target.attr.startswith("on_")
                    and not (isinstance(target.value, ast.Name) and target.value.id == "self")
                ):
                    found.add(module_name(path))
    assert found == SET_LATER
