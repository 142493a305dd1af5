"""TlsContexts: the TLS contexts of a worker's data plane, for both sides of a connection.

Owner: the worker; dialling task threads use the client's context, the I/O thread the server's. Both ends of a
connection must show a certificate of the application's own authority; nothing falls back to plain text.
Workers of one host use Unix sockets. A context costs megabytes, so the first connection that needs it makes
it.
"""

from __future__ import annotations

import ssl
from functools import cached_property

from yarrow.container.protocol.worker_protocol import WorkerSettings
from yarrow.runtime.security.keystores import load_pair


class TlsContexts:
    """Client and server contexts of one application: both ends must show a certificate of its authority."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings

    @staticmethod
    def of(settings: WorkerSettings) -> TlsContexts | None:
        """The contexts for the certificate in the settings; None without one."""
        return TlsContexts(settings) if settings.certificate else None

    @cached_property
    def client(self) -> ssl.SSLContext:
        """For connections that this worker opens."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    @cached_property
    def server(self) -> ssl.SSLContext:
        """For connections that it accepts."""
        return self._context(ssl.PROTOCOL_TLS_SERVER)

    def _context(self, side: int) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        # A pinned certificate is trusted by itself, whoever signed it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=settings.ca_certificate.decode())
        load_pair(context, settings.certificate, settings.private_key, settings.working_directory)
        return context
