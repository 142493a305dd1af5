"""A WebHDFS client that shows a delegation token: WebHDFS takes it in the address alone, so that addresses are secrets.

Owner: one borrower at a time (webhdfs_sessions). Nothing that leaves here names the token: neither errors, nor what the
libraries below log.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Final

import hdfs
import requests
from requests.adapters import HTTPAdapter

_SECRET: Final = re.compile(r"\b((?:delegation|token)=)[^&\s'\")]+", re.IGNORECASE)
#: Loggers that name addresses.
_LOGGERS: Final = ("urllib3.connectionpool", "urllib3.poolmanager", "urllib3.util.retry", "hdfs.client")


def redacted(text: str) -> str:
    """The text without tokens in addresses."""
    return _SECRET.sub(r"\1******", text)


class _RedactingFilter(logging.Filter):
    """Takes tokens out of records."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        clean = redacted(message)
        if clean != message:
            record.msg, record.args = clean, ()
        return True


class _RedactingAdapter(HTTPAdapter):
    """An adapter whose errors do not name the address: it raises them without the token and their causes."""

    def send(self, request: Any, *args: Any, **settings: Any) -> Any:
        try:
            return super().send(request, *args, **settings)
        except requests.RequestException as error:
            clean = type(error)(redacted(str(error)))
        raise clean


def token_client(addresses: str, token: str, timeout: tuple[float, float]) -> Any:
    """A client of the package `hdfs`."""
    session = requests.Session()
    session.mount("http://", _RedactingAdapter())
    session.mount("https://", _RedactingAdapter())
    return hdfs.TokenClient(addresses, token, timeout=timeout, session=session)


_filter = _RedactingFilter()
for _name in _LOGGERS:
    logging.getLogger(_name).addFilter(_filter)
