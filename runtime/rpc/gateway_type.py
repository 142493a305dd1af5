"""GatewayType: a gateway Protocol with its codecs, from which typed clients and receivers are made.

Owner: none (made at import, the codecs of a method at its first call by any thread; immutable). Only here are
methods known by name: callers hold a client that mypy sees as the Protocol. Arguments are sent as one msgpack
array, which is decoded by the annotations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar, cast, get_type_hints

import msgspec

from yarrow.runtime.rpc.batch_gateways import BatchJobMasterGateway, SparkDriverGateway
from yarrow.runtime.rpc.errors import InvalidMessageError, WireError, from_wire, to_wire
from yarrow.runtime.rpc.gateways import (
    DispatcherGateway,
    JobMasterGateway,
    ResourceManagerGateway,
    TaskExecutorGateway,
    may_wait,
)

G = TypeVar("G")

_ENCODER = msgspec.msgpack.Encoder()
_OK, _ERROR = b"\x00", b"\x01"
_ERROR_DECODER = msgspec.msgpack.Decoder(WireError)


class MethodSchema:
    """One method: the encoding of its arguments and its result.

    Its codecs are made at the first call: a process serves or calls a part of the methods.
    """

    def __init__(self, gateway: str, name: str, function: Callable[..., Any]) -> None:
        self.gateway = gateway
        self.name = name
        #: True = it answers after an event; it has no deadline, and is cancelled with its caller.
        self.waits = may_wait(function)
        self._function = function

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self._function)

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.Signature(list(inspect.signature(self._function).parameters.values())[1:])

    @cached_property
    def _count(self) -> int:
        return len(self._signature.parameters)

    @cached_property
    def _arguments(self) -> msgspec.msgpack.Decoder[tuple[Any, ...]]:
        types = tuple(self._hints[name] for name in self._signature.parameters)
        return msgspec.msgpack.Decoder(cast(type[tuple[Any, ...]], tuple.__class_getitem__(types)))

    @cached_property
    def _result(self) -> msgspec.msgpack.Decoder[Any]:
        return msgspec.msgpack.Decoder(self._hints["return"])

    @property
    def title(self) -> str:
        """The method's name in messages to people."""
        return f"{self.gateway}.{self.name}"

    def encode_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The encoded arguments. Raises TypeError if they do not fit the signature."""
        if kwargs or len(args) != self._count:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args = bound.args
        return _ENCODER.encode(args)

    def decode_call(self, data: bytes) -> tuple[Any, ...]:
        """The decoded arguments. Raises InvalidMessageError if they differ from the gateway's declaration."""
        try:
            return self._arguments.decode(data)
        except msgspec.DecodeError as error:
            raise InvalidMessageError(f"{self.title}: the arguments do not decode: {error}") from None

    def encode_result(self, result: Any) -> bytes:
        """Encodes a result."""
        return _OK + _ENCODER.encode(result)

    def encode_error(self, error: BaseException) -> bytes:
        """Encodes an error."""
        return _ERROR + _ENCODER.encode(to_wire(error))

    @staticmethod
    def is_error(data: bytes) -> bool:
        """Whether `decode_reply` raises the receiver's error."""
        return data[:1] == _ERROR

    def decode_reply(self, data: bytes) -> Any:
        """The result; raises the receiver's error."""
        body = memoryview(data)[1:]
        try:
            if data[:1] == _OK:
                return self._result.decode(body)
            error = from_wire(_ERROR_DECODER.decode(body))
        except msgspec.DecodeError as broken:
            raise InvalidMessageError(f"{self.title}: the answer does not decode: {broken}") from None
        raise error


class Caller(Protocol):
    """Sends an encoded call to a receiver, and returns the encoded reply."""

    async def call(self, method: MethodSchema, arguments: bytes) -> bytes:
        """Raises RpcError if there is no reply."""
        ...


class _Client:
    """Base of the generated clients."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller


def _client_method(schema: MethodSchema) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def call(self: _Client, *args: Any, **kwargs: Any) -> Any:
        reply = await self._caller.call(schema, schema.encode_call(args, kwargs))
        return schema.decode_reply(reply)

    call.__name__ = schema.name
    return call


class GatewayType(Generic[G]):
    """A gateway Protocol `G` at run time: `GatewayType[XGateway](XGateway)`."""

    def __init__(self, protocol: type, name: str = "") -> None:
        """`name` tells two servers of one Protocol apart that have different roles; "" = that of the Protocol."""
        self.name = name or protocol.__name__
        self.methods: dict[str, MethodSchema] = {
            name: MethodSchema(self.name, name, function)
            for name, function in vars(protocol).items()
            if inspect.iscoroutinefunction(function)
        }
        body = {name: _client_method(schema) for name, schema in self.methods.items()}
        self._client = type(f"{self.name}Client", (_Client,), body)

    def client(self, caller: Caller) -> G:
        """A client whose methods are those of the Protocol."""
        return cast(G, self._client(caller))

    def method(self, name: str) -> MethodSchema:
        """The method of that name. Raises InvalidMessageError if the gateway has none."""
        try:
            return self.methods[name]
        except KeyError:
            raise InvalidMessageError(f"{self.name} has no method {name!r}") from None


DISPATCHER = GatewayType[DispatcherGateway](DispatcherGateway)
RESOURCE_MANAGER = GatewayType[ResourceManagerGateway](ResourceManagerGateway)
JOB_MASTER = GatewayType[JobMasterGateway](JobMasterGateway)
TASK_EXECUTOR = GatewayType[TaskExecutorGateway](TaskExecutorGateway)
BATCH_JOB_MASTER = GatewayType[BatchJobMasterGateway](BatchJobMasterGateway)
SPARK_DRIVER = GatewayType[SparkDriverGateway](SparkDriverGateway)
#: The same of a driver that lives in a TaskExecutor, which proves itself as one.
LOCAL_DRIVER = GatewayType[SparkDriverGateway](SparkDriverGateway, "LocalDriverGateway")
