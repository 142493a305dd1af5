"""Clients that follow the leader: each call goes to the present leader of a component.

Owner: the loop on which the client is used. A call that certainly was not executed, because its receiver
leads no more, is repeated at the next leader. The caller gets any other failure.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from yarrow.runtime.common.timers import Timers
from yarrow.runtime.config.options import rest
from yarrow.runtime.rpc.errors import (
    EndpointNotFoundError,
    EndpointStoppedError,
    LeaderTokenError,
    RpcUnavailableError,
)
from yarrow.runtime.rpc.gateway_type import GatewayType, MethodSchema
from yarrow.runtime.rpc.leader import LeaderInformation, LeaderRetrieval
from yarrow.runtime.rpc.service import RpcService

G = TypeVar("G")


class NoLeaderError(RpcUnavailableError):
    """No leader was found in time."""


class LeaderCaller:
    """A Caller whose calls go to the leader of one component."""

    def __init__(
        self, rpc: RpcService, retrieval: LeaderRetrieval, component: str, patience: float, timers: Timers
    ) -> None:
        """`patience`: seconds that a call waits for a leader."""
        self._rpc = rpc
        self._component = component
        self._patience = patience
        self._timers = timers
        self._leader: LeaderInformation | None = None
        self._changed = asyncio.Event()
        self._retrieval = retrieval
        retrieval.start(self._announced)

    def close(self) -> None:
        """Stops following the leader."""
        self._retrieval.stop(self._announced)

    def client(self, gateway: GatewayType[G]) -> G:
        """The typed client of a gateway."""
        return gateway.client(self)

    async def call(self, method: MethodSchema, arguments: bytes) -> bytes:
        """See Caller."""
        refused: LeaderInformation | None = None
        if (leader := self._leader) is not None:
            reply = await self._call(leader, method, arguments)
            if not self._is_refusal(method, reply):
                return reply
            refused = leader
            if self._patience <= 0:
                return reply
        late = asyncio.Event()
        timer = self._timers.call_later(self._patience, late.set)
        try:
            while True:
                leader = await self._other_than(refused, late)
                reply = await self._call(leader, method, arguments)
                if late.is_set() or not self._is_refusal(method, reply):
                    return reply
                refused = leader
        finally:
            timer.cancel()

    async def _call(self, leader: LeaderInformation, method: MethodSchema, arguments: bytes) -> bytes:
        try:
            return await self._rpc.caller(leader.address, leader.leader_id).call(method, arguments)
        except EndpointNotFoundError as error:
            return method.encode_error(error)

    @staticmethod
    def _is_refusal(method: MethodSchema, reply: bytes) -> bool:
        """True if the receiver answers that it does not lead any more, and has changed nothing."""
        if not method.is_error(reply):
            return False
        try:
            method.decode_reply(reply)
        except EndpointStoppedError:
            return method.waits
        except (LeaderTokenError, EndpointNotFoundError):
            return True
        except Exception:
            return False
        return False

    async def _other_than(self, refused: LeaderInformation | None, late: asyncio.Event) -> LeaderInformation:
        while self._leader is None or self._leader == refused:
            if late.is_set():
                former = f"; the last leader was at {refused.address}" if refused is not None else ""
                raise NoLeaderError(
                    f"no master leads the {self._component} at present{former}: no leader came within "
                    f"{self._patience:g} s ({rest.AWAIT_LEADER_TIMEOUT.key})"
                )
            self._changed.clear()
            waits = [asyncio.ensure_future(self._changed.wait()), asyncio.ensure_future(late.wait())]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
        return self._leader

    def _announced(self, leader: LeaderInformation | None) -> None:
        self._leader = leader
        self._changed.set()
