"""Files as source and sink: the names that programs import.

Owner: none. The parts live in file_source, file_sink, file_compaction and file_format.
"""

from yarrow.datastream.connectors.file_compaction import FileCompactor, FileCompactStrategy
from yarrow.datastream.connectors.file_format import (
    MALFORMED_RECORDS,
    BulkFormat,
    MalformedPolicy,
    MalformedRecord,
    MalformedRecordError,
)
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_sink_policies import (
    BucketAssigner,
    BucketContext,
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from yarrow.datastream.connectors.file_source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from yarrow.datastream.connectors.stream_format import StreamFormat
from yarrow.datastream.connectors.streaming_file_sink import StreamingFileSink

__all__ = [
    "MALFORMED_RECORDS",
    "BucketAssigner",
    "BucketContext",
    "BulkFormat",
    "DefaultRollingPolicy",
    "FileCompactStrategy",
    "FileCompactor",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "MalformedPolicy",
    "MalformedRecord",
    "MalformedRecordError",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
    "StreamingFileSink",
]
