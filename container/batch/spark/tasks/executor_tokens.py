"""ExecutorTokens: new delegation tokens of Hadoop for the Python processes of an executor's container.

Owner: the thread `delegation tokens` of each Python process; this thread ends with the run. Spark renews the tokens of
an executor's Java alone. The driver sends tokens over the run's own connection with mutual TLS, and each reader of HDFS
looks whether the file of tokens has changed. Must not log a token.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Final

import msgspec

from yarrow.container.batch.driver.task_messages import TokensSent, TokensWanted, ToTaskMessage
from yarrow.container.batch.spark.tasks.driver_address import DriverAddress
from yarrow.container.protocol.errors import FrameError
from yarrow.container.protocol.framing import FramedSocket
from yarrow.runtime.common.retry_pauses import RetryPauses
from yarrow.runtime.fs.hadoop_tokens import token_file
from yarrow.runtime.fs.token_files import take_tokens_or_tell

#: Seconds for which a driver is asked that does not answer, and the pauses between the questions.
_ASK_SECONDS: Final = 1800.0
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)
_ANSWERS: Final[msgspec.msgpack.Decoder[ToTaskMessage]] = msgspec.msgpack.Decoder(ToTaskMessage)


def follow_tokens(driver: DriverAddress) -> None:
    """Takes the driver's newest tokens at once, then in a thread each newer ones, until the run ends.

    It does nothing where this process has no file of tokens, or reads that of its driver.
    """
    if not driver.is_elsewhere or token_file() is None:
        return
    frames = None
    try:
        frames = _asked(driver)
    except (OSError, FrameError) as error:
        _log.warning("the driver's newest delegation tokens are not known yet: %s", error)
    threading.Thread(target=_follow, args=(driver, frames), name="delegation tokens", daemon=True).start()


def _asked(driver: DriverAddress) -> FramedSocket[ToTaskMessage]:
    """A connection over which the newest tokens have come. Raises OSError and FrameError.

    A driver that closes it without an answer may have lost it, or ends its run. Another question tells which.
    """
    frames: FramedSocket[ToTaskMessage] = FramedSocket(driver.connect(), _ANSWERS)
    try:
        frames.send(TokensWanted())
        if not _take_next(frames):
            raise ConnectionError(
                "the driver closed the connection for delegation tokens before it answered; its log says why"
            )
    except BaseException:
        frames.close()
        raise
    return frames


def _follow(driver: DriverAddress, frames: FramedSocket[ToTaskMessage] | None) -> None:
    """Takes newer tokens, over a new connection when one breaks; None = the first one must still be opened."""
    while True:
        if frames is not None:
            try:
                with contextlib.closing(frames):
                    while _take_next(frames):
                        _log.info("new delegation tokens are in use")
                return
            except (OSError, FrameError) as error:
                _log.warning("the connection for delegation tokens to the driver broke: %s", error)
        frames = _asked_again(driver)
        if frames is None:
            return


def _asked_again(driver: DriverAddress) -> FramedSocket[ToTaskMessage] | None:
    """The next connection; None = the driver has not answered for long, so that its run has probably ended."""
    pauses = RetryPauses(_ASK_SECONDS, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
    told: Exception | None = None
    while (pause := pauses.next_seconds()) is not None:
        time.sleep(pause)
        try:
            return _asked(driver)
        except (OSError, FrameError) as error:
            told = error
    _log.warning("no newer delegation tokens will come: the driver does not answer: %s", told)
    return None


def _take_next(frames: FramedSocket[ToTaskMessage]) -> bool:
    """Waits for tokens and takes them; False = the driver has closed the connection, as it does when the run ends."""
    sent = frames.receive()
    if not isinstance(sent, TokensSent):
        return False
    if sent.content:
        take_tokens_or_tell(sent.content)
    return True
