"""Files as source and sink: the names that programs import.

Owner: none. The parts live in file_source, file_sink and file_format.
"""

from yarrow.datastream.connectors.file_format import (
    MALFORMED_RECORDS,
    BulkFormat,
    MalformedPolicy,
    MalformedRecord,
    MalformedRecordError,
    StreamFormat,
)
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_sink_policies import (
    BucketAssigner,
    BucketContext,
    OutputFileConfig,
    RollingPolicy,
)
from yarrow.datastream.connectors.file_source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)

__all__ = [
    "MALFORMED_RECORDS",
    "BucketAssigner",
    "BucketContext",
    "BulkFormat",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "MalformedPolicy",
    "MalformedRecord",
    "MalformedRecordError",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]
