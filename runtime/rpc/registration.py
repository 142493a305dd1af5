"""LeaderConnection: registers an endpoint with a leader, with retries, and anew with each new leader.

Owner: the endpoint that registers; all callbacks run on its loop. Must not know what is registered: the
caller passes the call, and hears of the outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec

from yarrow.runtime.common.backoff import Backoff
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.timers import TimerHandle, Timers
from yarrow.runtime.config.options import cluster
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.endpoint import RpcEndpoint
from yarrow.runtime.rpc.errors import HandshakeError, RemoteError, RpcUnavailableError
from yarrow.runtime.rpc.gateway_type import GatewayType
from yarrow.runtime.rpc.leader import LeaderInformation, LeaderRetrieval
from yarrow.runtime.rpc.messages import RegistrationRejection, RegistrationSuccess
from yarrow.runtime.rpc.service import RpcService

G = TypeVar("G")
_log = logging.getLogger(__name__)


class RegistrationSettings(msgspec.Struct, frozen=True):
    """`cluster.registration.*`: seconds before the next attempt."""

    #: After attempts without an answer: doubled from the first to the last, and never longer than `error_delay`,
    #: after which Flink tries again where nobody listens.
    initial_pause: float = 0.1
    max_pause: float = 30.0
    #: After an error that is neither silence nor the leader's own failure.
    error_delay: float = 10.0
    #: After the leader failed to register.
    refused_delay: float = 30.0

    @classmethod
    def of(cls, config: Settings) -> RegistrationSettings:
        """The settings that a configuration gives."""
        return cls(
            config.get(cluster.REGISTRATION_INITIAL_TIMEOUT).seconds,
            config.get(cluster.REGISTRATION_MAX_TIMEOUT).seconds,
            config.get(cluster.REGISTRATION_ERROR_DELAY).seconds,
            config.get(cluster.REGISTRATION_REFUSED_DELAY).seconds,
        )


class Registration(msgspec.Struct, Generic[G], frozen=True, kw_only=True):
    """The call that registers an endpoint, and what the endpoint does about its outcome."""

    register: Callable[[G], Awaitable[RegistrationSuccess | RegistrationRejection]]
    #: Called after each accepted registration.
    on_registered: Callable[[G, RegistrationSuccess], None]
    #: Called with the reason when a leader refused for good.
    on_rejected: Callable[[str], None] = lambda reason: None
    #: Called when a registered leader is no more: replaced, or given up by `reconnect`.
    on_lost: Callable[[], None] = lambda: None


class LeaderConnection(Generic[G]):
    """Keeps an endpoint registered with the present leader."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        service: RpcService,
        gateway: GatewayType[G],
        retrieval: LeaderRetrieval,
        registration: Registration[G],
        timers: Timers,
        settings: RegistrationSettings | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._service = service
        self._gateway_type = gateway
        self._retrieval = retrieval
        self._registration = registration
        self._timers = timers
        self._settings = settings or RegistrationSettings()
        self._backoff = Backoff(self._settings.initial_pause, self._settings.max_pause)
        #: Pauses before a registration that follows one which the leader accepted and never confirmed.
        self._unconfirmed = Backoff(self._settings.initial_pause, self._settings.max_pause)
        self._is_confirmed = False
        self._leader: LeaderInformation | None = None
        self._gateway: G | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._retry: TimerHandle | None = None

    @property
    def gateway(self) -> G | None:
        """The gateway of the leader with which the endpoint is registered; None while it is not registered."""
        return self._gateway

    @property
    def leader(self) -> LeaderInformation | None:
        """The known leader, registered or not."""
        return self._leader

    def start(self) -> None:
        """Looks up the leader and registers."""
        self._retrieval.start(self._leader_changed)

    def stop(self) -> None:
        """Stops trying; the caller ends the registration itself."""
        self._retrieval.stop(self._leader_changed)
        self._abandon()
        self._gateway = None

    def confirm(self) -> None:
        """Takes note that the leader has answered the registered endpoint, or called it: the registration was valid."""
        self._is_confirmed = True
        self._unconfirmed.reset()

    def reconnect(self) -> None:
        """Registers again with the leader, because the registration is invalid (silence, refusal).

        At once after a registration that was confirmed. After others there is a pause, or a leader that accepts each
        registration and refuses the next message would be asked without end. An attempt that waits already stays.
        """
        if self._gateway is None and self._retry is not None:
            return
        self._lose()
        leader, confirmed = self._leader, self._is_confirmed
        self._is_confirmed = False
        if leader is None:
            return
        self._backoff.reset()
        if confirmed:
            self._try(leader)
            return
        pause = min(self._unconfirmed.next_seconds(), self._settings.error_delay)
        self._retry = self._timers.call_later(pause, lambda: self._try(leader))

    def _leader_changed(self, leader: LeaderInformation | None) -> None:
        self._lose()
        self._leader = leader
        self._is_confirmed = False
        self._unconfirmed.reset()
        if leader is not None:
            self._backoff.reset()
            self._try(leader)

    def _lose(self) -> None:
        self._endpoint.assert_main_thread()
        self._abandon()
        if self._gateway is not None:
            self._gateway = None
            self._registration.on_lost()

    def _abandon(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _try(self, leader: LeaderInformation) -> None:
        self._retry = None
        self._attempt = self._endpoint.spawn(self._register_once(leader), "registration")

    async def _register_once(self, leader: LeaderInformation) -> None:
        gateway: Any = self._service.connect(leader.address, self._gateway_type, leader.leader_id)
        try:
            answer = await self._registration.register(gateway)
        except HandshakeError as error:
            self._registration.on_rejected(str(error))
            return
        except YarrowError as error:
            pause = self._pause_after(error)
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
            self._registration.on_rejected(answer.reason)
            return
        self._gateway = gateway
        self._registration.on_registered(gateway, answer)

    def _pause_after(self, error: YarrowError) -> float:
        """Seconds before the next attempt: as in Flink, silence and errors have pauses of their own."""
        if isinstance(error, RpcUnavailableError):
            return min(self._backoff.next_seconds(), self._settings.error_delay)
        if isinstance(error, RemoteError):
            return self._settings.refused_delay
        return self._settings.error_delay
