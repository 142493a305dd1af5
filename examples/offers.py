"""Offers: a user looks at an article several times and puts it into the cart, but does not buy within half an hour.

python examples/offers.py

A pattern of a user's track of clicks. It ends in what must not come, so it matches when the time has passed, without a
further click. Each step looks at the article of the first one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from yarrow.cep import CEP, AfterMatchSkipStrategy, IterativeCondition, Pattern
from yarrow.common import Time, TimestampAssigner, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment


class Click(NamedTuple):
    """What a user does to an article, at a minute of the day."""

    user: str
    minute: int
    action: str
    article: str


CLICKS = [
    Click("ann", 0, "view", "boots"),
    Click("bob", 1, "view", "hat"),
    Click("ann", 2, "view", "coat"),
    Click("ann", 4, "view", "boots"),
    Click("bob", 5, "view", "hat"),
    Click("ann", 6, "cart", "boots"),
    Click("bob", 7, "cart", "hat"),
    Click("bob", 20, "buy", "hat"),
    Click("ann", 25, "buy", "coat"),
    Click("bob", 90, "view", "gloves"),
]


class TimeOfClick(TimestampAssigner):
    """The event time of a click is in its minute."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value.minute) * 60_000


class SameArticle(IterativeCondition):
    """True for an action on the article of the first step."""

    def __init__(self, action: str) -> None:
        self.action = action

    def filter(self, value: Any, ctx: IterativeCondition.Context) -> bool:
        (first,) = ctx.get_events_for_pattern("seen")
        return bool(value.action == self.action and value.article == first.article)


def track() -> Pattern:
    """Seen twice, put into the cart, and not bought within half an hour of the first look."""
    seen = Pattern.begin("seen", AfterMatchSkipStrategy.skip_past_last_event())
    seen = seen.where(lambda click: click.action == "view").followed_by("again").where(SameArticle("view"))
    cart = seen.followed_by("cart").where(SameArticle("cart"))
    return cart.not_followed_by("bought").where(SameArticle("buy")).within(Time.minutes(30))


def offer(match: dict[str, list[Any]]) -> str:
    """The offer to send."""
    (click,) = match["cart"]
    return f"{click.user}: 10 % off for {click.article}"


def offers() -> None:
    """Prints an offer for each track that fits."""
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOfClick())
    clicks = env.from_collection(CLICKS).assign_timestamps_and_watermarks(strategy)
    CEP.pattern(clicks.key_by(lambda click: click.user), track()).select(offer).print()
    env.execute("offers")


if __name__ == "__main__":
    offers()
