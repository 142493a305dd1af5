"""The bootstrap struct survives the pipe, and anything else on the pipe is refused in words."""

from __future__ import annotations

import io

import msgspec
import pytest

from yarrow.runtime.common.ids import JobID, JobMasterID, ResourceID, ResourceManagerID
from yarrow.runtime.rpc.bootstrap import (
    BootstrapError,
    PemIdentity,
    SparkDriverBootstrap,
    TaskExecutorBootstrap,
    encode_bootstrap,
    read_bootstrap,
    read_spark_driver_bootstrap,
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


DRIVER = SparkDriverBootstrap(
    application_id="app",
    driver_id=ResourceID("driver"),
    job_id=JobID("job"),
    job_master_address="grpc://h:1/jobmaster",
    job_master_id=JobMasterID("jm"),
    host="h",
    bind_host="h",
    identity=PemIdentity(certificate=b"c", private_key=b"k"),
    data_secret=b"s" * 32,
    configuration={"a": "b"},
    log_directory="logs",
    working_directory="work",
)


def test_the_bootstrap_of_a_spark_driver_is_read_and_that_of_another_process_is_not() -> None:
    stream = io.BytesIO(encode_bootstrap(DRIVER) + b"rest")
    assert read_spark_driver_bootstrap(stream) == DRIVER
    assert stream.read() == b"rest"
    with pytest.raises(BootstrapError, match="no bootstrap struct"):
        read_spark_driver_bootstrap(io.BytesIO(encode_bootstrap(BOOTSTRAP)))
    with pytest.raises(BootstrapError, match="SparkDrivers are started by the JobMaster"):
        read_spark_driver_bootstrap(io.BytesIO(b""))
