"""The three entrances of REST: each is a listener with one check before every request.

Owner: the event loop of the REST server. A check looks at method, path and headers, never at a body. A token
is compared by its hash, in constant time, and is never logged.

- loopback: embedded and standalone clusters on one host. No token; everything must be asked for under a name or
  address of this host, and what changes something by no page of another origin.
- token: YARN, and every other interface. `Authorization: Bearer TOKEN` with every request.
- proxy: the listener that YARN's proxy reaches. The proxy lets in whom YARN lets see the application and passes
  no Authorization on: views only, and cancelling by GET where `yarn.proxy.allow-cancel` says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import socket
from typing import Protocol
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from yarrow.am.rest.errors import ForbiddenError, UnauthorizedError
from yarrow.am.rest.services import EntranceKind, RestSettings, is_loopback

#: Methods that by themselves change nothing.
READING = frozenset({"GET", "HEAD", "OPTIONS"})
#: Paths that cancel or stop a job by GET.
_YARN_GETS = ("/yarn-cancel", "/yarn-stop")
_SCHEME = "bearer"
#: Addresses to listen on, not to connect to: browsers lead them to this host from any page.
_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})
#: A page of another origin can send this header only if the server allows it first, which this one does not.
_NO_PAGES_HEADER = "x-requested-with"


class Entrance(Protocol):
    """The check of one entrance."""

    async def check(self, scope: Scope) -> None:
        """Raises UnauthorizedError or ForbiddenError with what was expected."""
        ...


def entrance_of(settings: RestSettings) -> Entrance:
    """The entrance that the settings of a listener name."""
    if settings.entrance is EntranceKind.TOKEN:
        return TokenEntrance(settings.token_hash)
    if settings.entrance is EntranceKind.PROXY:
        return ProxyEntrance(settings.cancel_by_get)
    return LoopbackEntrance(settings)


class TokenEntrance:
    """Admits clients with the application's token.

    A page of another origin has none, because browsers do not send it by themselves.
    """

    def __init__(self, expected: bytes) -> None:
        """`expected`: the token's `token_hash`; ValueError for anything else."""
        if len(expected) != hashlib.sha256().digest_size:
            raise ValueError("the hash of a REST token has 32 bytes")
        self._expected = expected

    async def check(self, scope: Scope) -> None:
        # Embedded clusters, which clients start, have no tokens.
        from yarrow.runtime.security.rest_tokens import token_hash

        given = Headers(scope=scope).getlist("authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        known = hmac.compare_digest(token_hash(token.strip()), self._expected)
        if scheme.lower() != _SCHEME or not known:
            what = (
                "The request bears no token."
                if not given
                else ("The token of the request is not the token of this application.")
            )
            raise UnauthorizedError(
                f"{what} Send `Authorization: Bearer TOKEN` with the token that `yarrow token APPLICATION` "
                "prints, or go through `yarrow proxy APPLICATION`, which adds the token."
            )


class ProxyEntrance:
    """Shows views to those whom YARN lets see the application."""

    def __init__(self, allow_cancel: bool) -> None:
        self._allow_cancel = allow_cancel

    async def check(self, scope: Scope) -> None:
        path: str = scope["path"]
        if self._allow_cancel and scope["method"] == "GET" and path.endswith(_YARN_GETS):
            return
        if acts(scope):
            raise ForbiddenError(
                f"{scope['method']} {path} changes something, and YARN's proxy lets nobody change "
                "anything. Use the `yarrow` command, or REST with the application's token. The key "
                "yarn.proxy.allow-cancel allows cancelling a job through the proxy."
            )


class LoopbackEntrance:
    """Rejects web pages of other origins, which could use a browser on the inside.

    Every request must name this server: by a loopback name, its own address at which the request
    arrived, or by a name of this host. So an attacker's name that points here does not help. A request that
    changes something may say from which page it comes. That page must then be this server's own, or of the
    origin that `web.access-control-allow-origin` names. Clients other than browsers send no Origin.
    """

    def __init__(self, settings: RestSettings) -> None:
        self._origin = settings.allow_origin if settings.allow_origin != "*" else None
        named = {name for name in settings.host_names if name not in _ANY_ADDRESS}
        self._names = {"localhost", socket.gethostname().lower(), *named}
        self._asked_for_full_name = False

    async def check(self, scope: Scope) -> None:
        """Raises ForbiddenError with what was expected."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not await self._knows(_host_name(host), scope):
            raise ForbiddenError(
                f"The request is for the host {host!r}, which is not this one. Use a loopback address, the "
                f"address at which the server listens, or {' or '.join(sorted(self._names))}; or set "
                "rest.address to the name that is used."
            )
        if acts(scope):
            self._check_page(scope, headers, host)

    def _check_page(self, scope: Scope, headers: Headers, host: str) -> None:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is not None and origin != self._origin and urlsplit(origin).netloc.lower() != host.lower():
            raise ForbiddenError(
                f"A page of {origin!r} may not change anything here: only pages of this server, or of the"
                " origin that web.access-control-allow-origin names."
            )
        if origin is None and site not in ("none", "same-origin"):
            raise ForbiddenError("A page of another site may not change anything here.")
        # An older browser may send neither header for embedded content such as an image.
        is_shown = origin is not None or site == "same-origin" or _NO_PAGES_HEADER in headers
        if _plans_by_get(scope) and not is_shown:
            raise ForbiddenError(
                "A plan by GET runs the program's main: send the header"
                f" `{_NO_PAGES_HEADER}: NAME-OF-YOUR-CLIENT`, which pages of other origins cannot, or ask by POST."
            )

    async def _knows(self, name: str, scope: Scope) -> bool:
        if name in self._names or is_loopback(name) or _is_own_address(name, scope):
            return True
        if not self._asked_for_full_name:
            # The look-up may wait for a name server, so it happens for the first unknown name only.
            self._asked_for_full_name = True
            self._names.add((await asyncio.to_thread(socket.getfqdn)).lower())
        return name in self._names


def acts(scope: Scope) -> bool:
    """Whether a request changes something, runs a program, or takes rows for which another client waits."""
    if scope["method"] not in READING:
        return True
    path: str = scope["path"]
    return _plans_by_get(scope) or (path.startswith("/jobs/") and ("/yarn-" in path or "/collect/" in path))


def _plans_by_get(scope: Scope) -> bool:
    path: str = scope["path"]
    # Not only at the end: routes also match a path followed by a line feed.
    return scope["method"] in READING and path.startswith("/jars/") and "/plan" in path


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_own_address(name: str, scope: Scope) -> bool:
    """Whether `name` is the address of this host at which the connection arrived."""
    server = scope.get("server")
    try:
        return server is not None and ipaddress.ip_address(name) == ipaddress.ip_address(server[0])
    except ValueError:
        return False
