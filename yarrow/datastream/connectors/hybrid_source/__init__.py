"""HybridSource: sources read one after another, as one source of a stream.

Owner: none. The parts live in source_chain (what the program builds), hybrid_enumerator and hybrid_reader; their splits
and events in hybrid_splits.
"""

from yarrow.datastream.connectors.hybrid_source.source_chain import (
    HybridSource,
    HybridSourceBuilder,
    SourceSwitchContext,
)

__all__ = ["HybridSource", "HybridSourceBuilder", "SourceSwitchContext"]
