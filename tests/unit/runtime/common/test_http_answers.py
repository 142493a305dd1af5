"""Bodies of HTTP answers: whole, cut at the limit, or an error; the answer's file on its socket is closed each time."""

from __future__ import annotations

import http.client
import socket

import pytest

from yarrow.runtime.common.http_answers import body_of


def answer_of(length: int, body: bytes) -> http.client.HTTPResponse:
    """The answer of a server that names `length`, sends `body` and ends."""
    own, other = socket.socketpair()
    with own, other:
        other.sendall(f"HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n".encode() + body)
        other.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(own)
        answer.begin()
        return answer


@pytest.mark.parametrize("limit, found", [(5, b"12345"), (3, b"1234")], ids=["whole", "too-long"])
def test_an_answer_is_read_and_closed(limit: int, found: bytes) -> None:
    answer = answer_of(5, b"12345")
    assert body_of(answer, limit) == found
    assert answer.isclosed()


def test_half_an_answer_is_none() -> None:
    answer = answer_of(6, b"12345")
    with pytest.raises(http.client.IncompleteRead):
        body_of(answer, 10)
    assert answer.isclosed()
