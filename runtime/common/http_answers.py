"""The body of an HTTP answer, whole or not at all.

Owner: any thread; blocking. Must not take the beginning of a body for the whole. A server that dies before the last
byte of its answer has not answered.
"""

from __future__ import annotations

import http.client


def body_of(response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    """The body; of one that is longer than `max_bytes`, the first `max_bytes + 1` bytes. Closes the response.

    The response has its own file on the socket. An HTTPConnection that is closed does not close the file.
    Raises http.client.IncompleteRead where the connection ended before the length that the head told. `read` with a
    size says nothing then: it returns what has come.
    """
    with response:
        data = response.read(max_bytes + 1)
    if response.length and len(data) <= max_bytes:
        raise http.client.IncompleteRead(data, response.length)
    return data
