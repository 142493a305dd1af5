"""An alarm stream that a second job reads: the first finds hot machines, the second rooms with several of them.

python examples/alarm_stream.py raise FOLDER    the first job: alarms go to files in the folder
python examples/alarm_stream.py gather FOLDER   the second job: a pattern over the alarms of the first

The files hold each alarm once, also after a failure of the first job, and are visible when a checkpoint is complete. An
alarm bears its time, so the second job sees alarms in the order in which they happened.
"""

from __future__ import annotations

import sys
from typing import Any

from yarrow.cep import CEP, AfterMatchSkipStrategy, Pattern
from yarrow.common import Duration, Encoder, Time, TimestampAssigner, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import FileSink, FileSource, StreamFormat

#: (room, machine, second, degrees)
READINGS = [
    ("hall", "m1", 0, 60),
    ("hall", "m1", 10, 91),
    ("hall", "m2", 12, 93),
    ("hall", "m1", 20, 94),
    ("attic", "m9", 21, 95),
    ("hall", "m2", 22, 95),
    ("attic", "m9", 31, 70),
]


class TimeOfReading(TimestampAssigner):
    """The event time of a reading is in its third field."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[2]) * 1000


class TimeOfAlarm(TimestampAssigner):
    """The event time of an alarm is behind its second comma."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value.split(",")[2]) * 1000


def hot() -> Pattern:
    """Two readings of a machine in a row above 90 degrees."""
    hot = Pattern.begin("hot", AfterMatchSkipStrategy.skip_past_last_event())
    hot = hot.where(lambda reading: reading[3] > 90).times(2).consecutive()
    return hot.within(Time.minutes(1))


def alarm(match: dict[str, list[Any]]) -> str:
    """The alarm `room,machine,second` of a match."""
    room, machine, second, _ = match["hot"][-1]
    return f"{room},{machine},{second}"


def several() -> Pattern:
    """Two alarms of a room within a minute."""
    first = Pattern.begin("alarm", AfterMatchSkipStrategy.skip_past_last_event())
    return first.times(2).within(Time.minutes(1))


def report(match: dict[str, list[Any]]) -> str:
    """A line on a room."""
    alarms = [line.split(",") for line in match["alarm"]]
    machines = " and ".join(machine for _, machine, _ in alarms)
    return f"{alarms[0][0]}: {machines} are hot at {alarms[-1][2]} s"


def raise_alarms(folder: str) -> None:
    """Writes the alarms of machines."""
    env = StreamExecutionEnvironment.get_execution_environment()
    row = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG()])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TimeOfReading())
    readings = env.from_collection(READINGS, row).assign_timestamps_and_watermarks(strategy)
    by_machine = readings.key_by(lambda reading: reading[1], Types.STRING())
    alarms = CEP.pattern(by_machine, hot()).select(alarm, output_type=Types.STRING())
    alarms.sink_to(FileSink.for_row_format(folder, Encoder.simple_string_encoder()).build())
    env.execute("alarms")


def gather_alarms(folder: str) -> None:
    """Prints the rooms whose alarms come together."""
    env = StreamExecutionEnvironment.get_execution_environment()
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), folder).build()
    # Files are read in any order: alarms may come a minute behind others.
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(1))
    alarms = env.from_source(source, strategy.with_timestamp_assigner(TimeOfAlarm()), "alarms")
    by_room = alarms.key_by(lambda line: line.split(",")[0], Types.STRING())
    CEP.pattern(by_room, several()).select(report, output_type=Types.STRING()).print()
    env.execute("rooms")


if __name__ == "__main__":
    _, job, where = sys.argv
    {"raise": raise_alarms, "gather": gather_alarms}[job](where)
