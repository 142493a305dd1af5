"""TLS of the data plane: the contexts of a worker's two sides.

Owner: the thread that starts the worker; the contexts are used by the task threads that dial and by the I/O thread.
Both ends of a connection must show a certificate of the application's own authority; nothing falls back to plain text.
"""

from __future__ import annotations

import ssl

from yarrow.container.worker_protocol import WorkerSettings
from yarrow.runtime.security.keystores import load_pair


class TlsContexts:
    """Client and server contexts of one application: both ends must show a certificate of its authority."""

    def __init__(self, client: ssl.SSLContext, server: ssl.SSLContext) -> None:
        self.client = client
        self.server = server

    @staticmethod
    def of(settings: WorkerSettings) -> TlsContexts | None:
        """The contexts for the certificate in the settings; None without one."""
        if not settings.certificate:
            return None
        contexts = []
        for side in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
            context = ssl.SSLContext(side)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.verify_mode = ssl.CERT_REQUIRED
            # A pinned certificate is trusted by itself, whoever signed it.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(cadata=settings.ca_certificate.decode())
            load_pair(context, settings.certificate, settings.private_key, settings.working_directory)
            contexts.append(context)
        return TlsContexts(*contexts)
