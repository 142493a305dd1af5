"""take_files_once: the records of files that each run of a scheduled job takes up once, for reports and compaction.

Owner: the thread that builds the program. The names of the files come from one source. One branch behind it reads the
files; the other one is a sink that records what was taken. So the record is committed together with the results of the
run: both, or neither.
"""

from __future__ import annotations

from typing import TypeVar

from yarrow.batch.file_ledger import checked_name
from yarrow.batch.taken_file_names import ReadFile, TakenFilesSink, UntakenFiles
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream.connectors.file_format import FileFormat
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.runtime.common.errors import InvalidProgramError

T = TypeVar("T")


def take_files_once(
    env: StreamExecutionEnvironment,
    file_format: FileFormat[T],
    path: str,
    name: str,
    *,
    remove: bool = False,
) -> DataStream:
    """The records of all files below the folder `path` that no earlier run of `name` has taken.

    A file is taken when the run's sinks are committed. A run that fails before takes nothing, so the next one reads
    the same files again. What was taken is recorded in the hidden folder `.taken-<name>` below `path`. `remove`: taken
    files are deleted by the commit, as compaction wants it. Hidden files, as those that a FileSink still writes, are
    left out. Runs of one name must not overlap: those of a schedule do not.

    Raises InvalidProgramError for a folder that is none, for a bad name, and for a columnar format.
    """
    checked_name(name, "take_files_once")
    if not isinstance(file_format, FileFormat):
        raise InvalidProgramError(f"take_files_once: {file_format!r} is no format of a FileSource")
    source = env.in_default_file_system(UntakenFiles(path, name))
    names = env.from_source(
        source, WatermarkStrategy.no_watermarks(), f"Files of {name}", Types.STRING()
    ).set_parallelism(1)
    names.sink_to(TakenFilesSink(source.path, name, remove)).set_parallelism(1).name(f"Files taken by {name}")
    return names.rebalance().flat_map(ReadFile(file_format, source.path), file_format.produced_type())
