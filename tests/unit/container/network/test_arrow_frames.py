"""Record batches on the wire."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.container.operators.columnar.columns import KEY_COLUMNS, array_of
from yarrow.container.network.element_codec import ElementCodec
from yarrow.container.network.frames import FrameType, WireProtocolError
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.data.serializers.serializers import serializer_for

_codec = ElementCodec(serializer_for(None))


def _round_trip(batch: ArrowBatch) -> ArrowBatch:
    frame_type, parts, flags = _codec.encode_batch(batch)
    decoded = _codec.decode(frame_type, b"".join(parts), len(batch), flags)
    assert isinstance(decoded, ArrowBatch)
    return decoded


@pytest.mark.slow
@pytest.mark.parametrize("name", KEY_COLUMNS)
@settings(max_examples=25)
@given(data=st.data())
def test_columns_times_and_kinds_come_back(name: str, data: st.DataObject) -> None:
    kind, values_of = KEY_COLUMNS[name]
    values = data.draw(st.lists(st.none() | values_of, min_size=1, max_size=20))
    size = len(values)
    stamp = st.none() | st.integers(-(2**63), 2**63 - 1)
    times = data.draw(st.none() | st.lists(stamp, min_size=size, max_size=size))
    kinds = data.draw(st.none() | st.binary(min_size=size, max_size=size))
    start = data.draw(st.integers(0, len(values) - 1))
    batch = pa.record_batch([array_of(values, kind)], names=["column"]).slice(start)
    stamps = None if times is None else pa.array(times, pa.int64()).slice(start)
    decoded = _round_trip(ArrowBatch(batch, stamps, None if kinds is None else kinds[start:]))
    assert decoded.batch.schema == batch.schema
    assert repr(decoded.batch.to_pylist()) == repr(batch.to_pylist())  # NaN differs from itself
    assert decoded.kinds == (None if kinds is None else kinds[start:])
    got = None if decoded.timestamps is None else decoded.timestamps.to_pylist()
    assert got == (None if times is None else times[start:])


def test_a_slice_takes_no_more_bytes_than_its_rows() -> None:
    whole = pa.record_batch({"key": range(100_000), "text": [str(i) for i in range(100_000)]})
    _, parts, _ = _codec.encode_batch(ArrowBatch(whole.slice(500, 10)))
    assert sum(map(len, parts)) < 2000


def test_malformed_frames_are_refused() -> None:
    _, parts, flags = _codec.encode_batch(
        ArrowBatch(pa.record_batch({"key": range(100)}), pa.array(range(100)))
    )
    frame = b"".join(parts)
    for damaged, rows in ((frame[:-60], 100), (frame[:40], 100), (frame, 99), (b"", 1)):
        with pytest.raises(WireProtocolError):
            _codec.decode(FrameType.ARROW, damaged, rows, flags)
    with pytest.raises(WireProtocolError, match="malformed ARROW frame"):
        _codec.decode(FrameType.ARROW, b"\x00" * 64, 1, 0)
