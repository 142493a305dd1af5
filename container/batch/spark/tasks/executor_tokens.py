"""ExecutorTokens: new delegation tokens of Hadoop for the Python processes of an executor's container.

Owner: the thread `delegation tokens` of each Python process; this thread ends with the run. Spark renews the tokens of
an executor's Java alone. The driver sends tokens over the run's own connection with mutual TLS, and each reader of HDFS
looks whether the file of tokens has changed. Must not log a token.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Final

import msgspec

from yarrow.container.batch.driver.task_messages import TokensSent, TokensWanted, ToTaskMessage
from yarrow.container.batch.spark.tasks.driver_address import DriverAddress
from yarrow.container.protocol.errors import FrameError
from yarrow.container.protocol.framing import FramedSocket
from yarrow.runtime.fs.hadoop_tokens import token_file
from yarrow.runtime.fs.token_files import take_tokens_or_tell

_log = logging.getLogger(__name__)
_ANSWERS: Final[msgspec.msgpack.Decoder[ToTaskMessage]] = msgspec.msgpack.Decoder(ToTaskMessage)


def follow_tokens(driver: DriverAddress) -> None:
    """Takes the driver's newest tokens at once, then in a thread each newer ones, until the run ends.

    It does nothing where this process has no file of tokens, or reads that of its driver.
    """
    if not driver.is_elsewhere or token_file() is None:
        return
    with contextlib.ExitStack() as failing:
        try:
            frames: FramedSocket[ToTaskMessage] = FramedSocket(driver.connect(), _ANSWERS)
            failing.callback(frames.close)
            frames.send(TokensWanted())
            _take_next(frames)
        except (OSError, FrameError) as error:
            _log.warning("the driver's newest delegation tokens are not known: %s", error)
            return
        failing.pop_all()
    threading.Thread(target=_follow, args=(frames,), name="delegation tokens", daemon=True).start()


def _follow(frames: FramedSocket[ToTaskMessage]) -> None:
    with contextlib.closing(frames):
        try:
            while _take_next(frames):
                _log.info("new delegation tokens are in use")
        except (OSError, FrameError) as error:
            _log.warning(
                "no newer delegation tokens will come: the connection to the driver broke: %s", error
            )


def _take_next(frames: FramedSocket[ToTaskMessage]) -> bool:
    """Waits for tokens and takes them; False = the run has ended."""
    sent = frames.receive()
    if not isinstance(sent, TokensSent):
        return False
    if sent.content:
        take_tokens_or_tell(sent.content)
    return True
