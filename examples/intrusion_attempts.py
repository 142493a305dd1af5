"""Intrusion attempts: three or more failed logins of a user within a minute, and then one that works.

python examples/intrusion_attempts.py

A greedy loop, which takes all failures before the login. What comes from another address in between does not break the
match. A user who only mistypes once raises no alarm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from yarrow.cep import CEP, AfterMatchSkipStrategy, Pattern
from yarrow.common import Duration, Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment


class Login(NamedTuple):
    """A login at a second of the day, from an address."""

    user: str
    second: int
    address: str
    worked: bool


LOGINS = [
    Login("root", 5, "203.0.113.7", False),
    Login("eve", 8, "198.51.100.2", False),
    Login("root", 11, "203.0.113.7", False),
    Login("eve", 12, "198.51.100.2", True),
    Login("root", 9, "203.0.113.9", False),
    Login("root", 21, "203.0.113.7", True),
    Login("root", 300, "192.0.2.1", True),
]


class TimeOfLogin(TimestampAssigner):
    """The event time of a login is in its second."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value.second) * 1000


def attempts() -> Pattern:
    """Failures, then a login that works, all within a minute."""
    failed = Pattern.begin("failed", AfterMatchSkipStrategy.skip_past_last_event())
    failed = failed.where(lambda login: not login.worked).times_or_more(3).greedy()
    return failed.followed_by("entered").where(lambda login: login.worked).within(Time.minutes(1))


def alarm(match: dict[str, list[Any]]) -> str:
    """A line on a match."""
    (entered,) = match["entered"]
    failed = match["failed"]
    addresses = ", ".join(sorted({login.address for login in failed}))
    return f"{entered.user} entered at {entered.second} s behind {len(failed)} failures from {addresses}"


def intrusions() -> None:
    """Prints an alarm for each attempt that has succeeded."""
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    in_time = strategy.with_timestamp_assigner(TimeOfLogin())
    logins = env.from_collection(LOGINS).assign_timestamps_and_watermarks(in_time)
    by_user = logins.key_by(lambda login: login.user)
    CEP.pattern(by_user, attempts()).select(alarm, output_type=Types.STRING()).print()
    env.execute("intrusion attempts")


if __name__ == "__main__":
    intrusions()
