"""Registration with a leader: tried until it is accepted or refused, and anew at each new leader.

Owner: the endpoint that registers; all callbacks run on its loop. Must not know what is registered: the
caller gives the call that does it and learns the outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from yarrow.runtime.common.backoff import Backoff
from yarrow.runtime.common.errors import FencingTokenError
from yarrow.runtime.common.timers import TimerHandle, Timers
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.errors import HandshakeError, RpcError
from yarrow.runtime.rpc.gateway_type import GatewayType
from yarrow.runtime.rpc.leader import LeaderInformation, LeaderRetrieval
from yarrow.runtime.rpc.messages import RegistrationRejection, RegistrationSuccess
from yarrow.runtime.rpc.service import RpcService

G = TypeVar("G")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RegistrationSettings:
    """Pauses in seconds between attempts: doubled from the first to the last."""

    initial_pause: float = 0.1
    max_pause: float = 10.0


class LeaderConnection(Generic[G]):
    """Keeps an endpoint registered with whoever leads."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        service: RpcService,
        gateway: GatewayType[G],
        retrieval: LeaderRetrieval,
        register: Callable[[G], Awaitable[RegistrationSuccess | RegistrationRejection]],
        timers: Timers,
        settings: RegistrationSettings | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._service = service
        self._gateway_type = gateway
        self._retrieval = retrieval
        self._register = register
        self._timers = timers
        settings = settings or RegistrationSettings()
        self._backoff = Backoff(settings.initial_pause, settings.max_pause)
        self._leader: LeaderInformation | None = None
        self._gateway: G | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._retry: TimerHandle | None = None
        #: Called after each accepted registration.
        self.on_registered: Callable[[G, RegistrationSuccess], None] = lambda gateway, success: None
        #: Called when a leader refused for good.
        self.on_rejected: Callable[[str], None] = lambda reason: None
        #: Called when a registered leader is no more: replaced, or given up by `reconnect`.
        self.on_lost: Callable[[], None] = lambda: None

    @property
    def gateway(self) -> G | None:
        """The leader with which the endpoint is registered; None while it is with none."""
        return self._gateway

    @property
    def leader(self) -> LeaderInformation | None:
        """The leader known at present, registered or not."""
        return self._leader

    def start(self) -> None:
        """Looks up the leader and registers."""
        self._retrieval.start(self._leader_changed)

    def stop(self) -> None:
        """Tries no more; the registration itself is left to the caller to end."""
        self._retrieval.stop(self._leader_changed)
        self._abandon()
        self._gateway = None

    def reconnect(self) -> None:
        """The registration is worth nothing any more (silence, refusal): registers again with the leader."""
        self._leader_changed(self._leader)

    def _leader_changed(self, leader: LeaderInformation | None) -> None:
        self._endpoint.assert_main_thread()
        self._abandon()
        self._leader = leader
        if self._gateway is not None:
            self._gateway = None
            self.on_lost()
        if leader is not None:
            self._backoff.reset()
            self._try(leader)

    def _abandon(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _try(self, leader: LeaderInformation) -> None:
        self._attempt = self._endpoint.spawn(self._register_once(leader), "registration")

    async def _register_once(self, leader: LeaderInformation) -> None:
        gateway: Any = self._service.connect(leader.address, self._gateway_type, leader.leader_id)
        try:
            answer = await self._register(gateway)
        except HandshakeError as error:
            self.on_rejected(str(error))
            return
        except (RpcError, FencingTokenError) as error:
            pause = self._backoff.next_seconds()
            _log.info(
                "%s: registration at %s failed, next try in %.1f s: %s",
                self._endpoint.name,
                leader.address,
                pause,
                error,
            )
            self._retry = self._timers.call_later(pause, lambda: self._try(leader))
            return
        if isinstance(answer, RegistrationRejection):
            self.on_rejected(answer.reason)
            return
        self._gateway = gateway
        self.on_registered(gateway, answer)
