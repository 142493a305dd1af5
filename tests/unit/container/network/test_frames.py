"""The header of a frame: what is refused before anything behind it is read."""

from __future__ import annotations

import pytest

from yarrow.container.network.frames import (
    HEADER,
    MAGIC,
    MAX_CONTROL_BYTES,
    MAX_HANDSHAKE_BYTES,
    WIRE_VERSION,
    FrameType,
    WireProtocolError,
    decode_header,
    encode_header,
)

MAX_PAYLOAD = 1 << 20
HANDSHAKE = {FrameType.HELLO, FrameType.CHALLENGE, FrameType.PROOF}


@pytest.mark.parametrize("frame_type", FrameType)
def test_before_the_proof_there_is_nothing_but_the_handshake(frame_type: FrameType) -> None:
    data = encode_header(frame_type, 1, 10)
    assert decode_header(data, 0, authenticated=True, max_payload=MAX_PAYLOAD).type is frame_type
    if frame_type in HANDSHAKE:
        assert decode_header(data, 0, authenticated=False, max_payload=MAX_PAYLOAD).type is frame_type
    else:
        with pytest.raises(WireProtocolError, match=f"{frame_type.name} before the handshake"):
            decode_header(data, 0, authenticated=False, max_payload=MAX_PAYLOAD)


@pytest.mark.parametrize(
    ("frame_type", "authenticated", "cap"),
    [
        (FrameType.HELLO, False, MAX_HANDSHAKE_BYTES),
        (FrameType.CREDIT, True, MAX_CONTROL_BYTES),
        (FrameType.ROWS, True, MAX_PAYLOAD),
    ],
)
def test_a_frame_is_as_long_as_its_kind_may_be(frame_type: FrameType, authenticated: bool, cap: int) -> None:
    decode_header(encode_header(frame_type, 1, cap), 0, authenticated=authenticated, max_payload=MAX_PAYLOAD)
    with pytest.raises(WireProtocolError, match=f"of {cap + 1} bytes, allowed are {cap}"):
        decode_header(
            encode_header(frame_type, 1, cap + 1), 0, authenticated=authenticated, max_payload=MAX_PAYLOAD
        )


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ((b"xx", WIRE_VERSION, FrameType.ROWS), "expected frame magic"),
        ((MAGIC, WIRE_VERSION + 1, FrameType.ROWS), f"speaks wire version {WIRE_VERSION + 1}"),
        ((MAGIC, WIRE_VERSION, 255), "unknown frame type 255"),
    ],
)
def test_another_protocol_is_named(header: tuple[bytes, int, int], said: str) -> None:
    with pytest.raises(WireProtocolError, match=said):
        decode_header(HEADER.pack(*header, 1, 0, 0, 0), 0, authenticated=True, max_payload=MAX_PAYLOAD)
