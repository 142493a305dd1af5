"""Counts hashtags: posts -> hashtags -> the running count of each.

python examples/hashtags.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from yarrow.common import Types
from yarrow.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from yarrow.datastream.state import ValueState


class Post(NamedTuple):
    """A message of a user."""

    user: str
    text: str


POSTS = [
    Post("ada", "Back from the lake #weekend #rain"),
    Post("bo", "More #Rain tomorrow, they say"),
    Post("cleo", "Coffee first. #monday"),
    Post("ada", "#monday again #rain"),
    Post("dan", "Nothing to add"),
]


def hashtags_of(post: Post) -> list[str]:
    """The hashtags of a post, in lower case."""
    return [tag.lower() for tag in re.findall(r"#\w+", post.text)]


class Count(KeyedProcessFunction[str, str, str]):
    """Counts the records of each key in a state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{value} {count}"


def main() -> None:
    """Prints each hashtag with its count so far."""
    env = StreamExecutionEnvironment.get_execution_environment()
    posts = env.from_collection(POSTS)
    posts.flat_map(hashtags_of).key_by(lambda tag: tag).process(Count()).print()
    env.execute("hashtags")


if __name__ == "__main__":
    main()
