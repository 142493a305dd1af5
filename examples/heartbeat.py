"""A heartbeat that stays out: a machine that has not been heard of for ten seconds, told when they are over.

python examples/heartbeat.py

The pattern ends in what must not come, so it matches when the time has passed, without a further record. Each beat
begins a match of its own, and the next beat of the machine ends it.
"""

from __future__ import annotations

from typing import Any

from yarrow.cep import CEP, Pattern
from yarrow.common import Duration, Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment

#: (machine, second of the day)
BEATS = [("m1", 0), ("m2", 1), ("m1", 5), ("m2", 11), ("m1", 9), ("m2", 20), ("m1", 30)]


class TimeOfBeat(TimestampAssigner):
    """The event time of a beat is in its second field."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 1000


def silence() -> Pattern:
    """A beat, and none for ten seconds."""
    beat = Pattern.begin("beat")
    return beat.not_followed_by("next").where(lambda beat: True).within(Time.seconds(10))


def warning(match: dict[str, list[Any]]) -> str:
    """A line on a match."""
    (beat,) = match["beat"]
    return f"{beat[0]} has been silent since {beat[1]} s"


def heartbeat() -> None:
    """Prints a warning for each silence."""
    env = StreamExecutionEnvironment.get_execution_environment()
    beats = env.from_collection(BEATS, Types.TUPLE([Types.STRING(), Types.LONG()]))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
    in_time = beats.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(TimeOfBeat()))
    by_machine = in_time.key_by(lambda beat: beat[0], Types.STRING())
    CEP.pattern(by_machine, silence()).select(warning, output_type=Types.STRING()).print()
    env.execute("heartbeat")


if __name__ == "__main__":
    heartbeat()
