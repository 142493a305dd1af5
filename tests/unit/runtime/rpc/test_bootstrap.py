"""The bootstrap struct survives the pipe, and anything else on the pipe is refused in words."""

from __future__ import annotations

import io

import msgspec
import pytest

from yarrow.runtime.common.ids import ResourceID, ResourceManagerID
from yarrow.runtime.rpc.bootstrap import (
    BootstrapError,
    PemIdentity,
    TaskExecutorBootstrap,
    encode_bootstrap,
    read_bootstrap,
)

BOOTSTRAP = TaskExecutorBootstrap(
    application_id="app",
    resource_id=ResourceID("te"),
    resource_manager_address="grpc://h:1/resourcemanager",
    resource_manager_id=ResourceManagerID("rm"),
    host="h",
    bind_host="0.0.0.0",
    identity=PemIdentity(certificate=b"c", private_key=b"k"),
    data_secret=b"s" * 32,
    configuration={"a": "b"},
    log_directory="logs",
    working_directory="work",
)


def test_what_was_written_is_read_and_nothing_more() -> None:
    stream = io.BytesIO(encode_bootstrap(BOOTSTRAP) + b"rest")
    assert read_bootstrap(stream) == BOOTSTRAP
    assert stream.read() == b"rest"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ended before"),
        (encode_bootstrap(BOOTSTRAP)[:-1], "ended before"),
        (b"\xff\xff\xff\xff", "found a length of 4294967295"),
        (b"\x01\x00\x00\x00\xc0", "no bootstrap struct"),
        (encode_bootstrap(msgspec.structs.replace(BOOTSTRAP, version=99)), "version 99"),
    ],
)
def test_anything_else_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(BootstrapError, match=message):
        read_bootstrap(io.BytesIO(data))
