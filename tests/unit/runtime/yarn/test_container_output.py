"""What is quoted of a container's output: its end, without stacks; a node that does not show it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.container_output import ContainerOutput, last_lines
from yarrow.runtime.yarn.gateways import YarnError
from yarrow.runtime.yarn.layout import SPARK_DRIVER_SERVICE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ""),
        ("a\n\n  b  c \n", "a / b c"),
        ("one\ntwo\nthree\nfour\n", "two / three / four"),
        ('Traceback (most recent call last):\n  File "x.py", line 1\n    f()\nKeyError: 1\n', "KeyError: 1"),
    ],
)
def test_the_last_lines_that_say_something(text: str, said: str) -> None:
    assert last_lines(text) == said


def test_what_is_long_is_cut_at_its_beginning() -> None:
    said = last_lines("x" * 5000 + " end")
    assert len(said) < 700
    assert said.startswith("... x")
    assert said.endswith("x end")


@pytest.mark.parametrize("node", ["", "host:port", "127.0.0.1:1"])
def test_a_node_that_does_not_show_it_is_named(node: str, tmp_path: Path) -> None:
    (tmp_path / "yarn-site.xml").write_text("<configuration/>")
    read = ContainerOutput(Settings(), {"YARN_CONF_DIR": str(tmp_path)})
    with pytest.raises(YarnError, match=f"^{node} does not show"):
        read(node, "container_1_0001_01_000002")


def test_the_file_is_that_of_the_service(tmp_path: Path) -> None:
    (tmp_path / "yarn-site.xml").write_text("<configuration/>")
    read = ContainerOutput(Settings(), {"YARN_CONF_DIR": str(tmp_path)}, SPARK_DRIVER_SERVICE)
    with pytest.raises(YarnError, match=r"does not show spark-driver\.log"):
        read("127.0.0.1:1", "container_1_0001_01_000002")
