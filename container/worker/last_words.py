"""LastWords: tells what tasks are doing, now and then, and once more when their process is about to die.

Owner: the tasks' thread begins and ends them. A thread of its own looks at the stacks, which costs a row
nothing. A crash in native code and `os._exit` are told when they happen. SIGKILL leaves no time for a word, so the last
look has to do. Must not keep a dying process alive: the kernel ends it after some seconds.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, NoReturn

from yarrow.container.worker.present_call import PresentCall, RunningCode

#: Seconds between two looks.
_LOOK_SECONDS: Final = 0.25
#: Seconds that a dying process may take for its last word.
_LAST_SECONDS: Final = 5
#: Seconds that the last word waits for a look which is being told.
_TELL_SECONDS: Final = 1.0
_CRASHES: Final = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)

_NOTHING: Final = PresentCall("", "", "")
#: Gets what the task does (without a name: no operator runs), and how its process ends; "" = it goes on.
Tell = Callable[[PresentCall, str], None]

_exit: Final = os._exit
_handler_type: Final = ctypes.CFUNCTYPE(None, ctypes.c_int)
#: Memory for a `struct sigaction` of Linux or macOS, which begins with the handler.
_Action: Final = ctypes.c_void_p * 64


class LastWords:
    """The words about the running tasks of this process; a context around their run."""

    def __init__(
        self, code: RunningCode, tell: Tell, in_flight: Callable[[], PresentCall | None] | None = None
    ) -> None:
        """`tell` is called by several threads, and may raise OSError.

        `in_flight` gives a call that runs on no thread now. None = the process has one task, on this thread alone.
        """
        self._code = code
        self._tell = tell
        self._in_flight = in_flight
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._over = threading.Event()
        #: Nobody tells anything behind the last word, nor behind the end.
        self._telling = threading.Lock()
        self._is_dying = False
        #: Looks that were made; each was told if anything had changed.
        self.looks = 0

    def __enter__(self) -> LastWords:
        _install()
        _Present.words = self
        threading.Thread(target=self._look, name="look at the task", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        if os.getpid() == self._process:
            # A look that has begun to tell ends first. In a forked process nobody would release the lock.
            with self._telling:
                pass
        if _Present.words is self:
            _Present.words = None

    def _look(self) -> None:
        told = _NOTHING
        while not self._over.wait(_LOOK_SECONDS):
            call = self._call(self._thread) or _NOTHING
            if call != told:
                with self._telling:
                    if self._over.is_set() or self._is_dying:
                        return
                    try:
                        self._tell(call, "")
                    except OSError:
                        return
                told = call
            self.looks += 1

    def _call(self, thread: int, *, with_stack: bool = False) -> PresentCall | None:
        """The call on this thread; if it runs no operator, that on another one, or one in flight."""
        frames = sys._current_frames()
        call = self._code.call_in(frames.pop(thread, None), with_stack=with_stack)
        if call is not None or self._in_flight is None:
            return call
        if thread != self._thread:
            # That of an event loop, for example, whose function has made a task of its own.
            call = self._in_flight() or self._code.call_in(
                frames.pop(self._thread, None), with_stack=with_stack
            )
        for frame in frames.values():
            call = call or self._code.call_in(frame, with_stack=with_stack)
        return call or self._in_flight()

    def dying(self, how: str) -> None:
        """Tells how the process ends, if this is the task's own process, in which one of its operators runs."""
        # A function may have forked this process.
        if os.getpid() != self._process or self._over.is_set():
            return
        thread = self._thread if self._in_flight is None else threading.get_ident()
        call = self._call(thread, with_stack=True)
        if call is None:
            return
        self._is_dying = True
        # A look that has begun to tell ends first; it could have crashed itself.
        is_alone = self._telling.acquire(timeout=_TELL_SECONDS)
        try:
            self._tell(call, how)
        finally:
            if is_alone:
                self._telling.release()


class _Present:
    """What this process runs."""

    words: LastWords | None = None
    #: The function that C calls; it must live as long as the process.
    handler: Any = None
    #: That of C.
    library: Any = None


def present() -> LastWords | None:
    """The words about the task that this process runs."""
    return _Present.words


def _install() -> None:
    """Lets this process tell its end; once. The handlers of the interpreter could not run in crashed native code.

    Handlers of the program stay: a Java in its process needs its own.
    """
    if _Present.handler is not None:
        return
    library = _Present.library = ctypes.CDLL(None)

    def crashed(number: int) -> None:
        # The next crash, or the end of this function, is the end.
        library.signal(number, None)
        _end_in_time()
        # As faulthandler writes it: whoever finds the dump takes the stack of the crashed thread.
        os.write(2, f"Fatal Python error: {signal.strsignal(number)}\n\n".encode())
        faulthandler.dump_traceback(2, all_threads=True)
        words = _Present.words
        if words is not None:
            try:
                name = signal.Signals(number).name
                words.dying(f"its native code crashed ({name}: {signal.strsignal(number)})")
            except Exception as error:  # nobody is left to hear of it
                os.write(2, f"the crash was not told: {error!r}\n".encode())
        os.kill(os.getpid(), number)

    _Present.handler = _handler_type(crashed)
    replaced: set[int | None] = {None}
    if faulthandler.is_enabled():
        # `crashed` does the work of faulthandler, whose handler is one for all crashes. Few programs catch SIGABRT.
        replaced.add(_handler_of(signal.SIGABRT))
    for number in _CRASHES:
        if _handler_of(number) in replaced:
            library.signal(int(number), _Present.handler)
    os._exit = _told_exit


def _handler_of(number: signal.Signals) -> int | None:
    """The address of the present handler of a signal; None = the default."""
    # Asked without a change: `signal` would drop the flags of a handler that it puts back.
    action = _Action()
    _Present.library.sigaction(int(number), None, action)
    handler: int | None = action[0]
    return handler


def _end_in_time() -> None:
    """From now on the kernel ends this process after some seconds."""
    # The program may catch this signal itself, by a handler for which a dying interpreter has no time.
    _Present.library.signal(int(signal.SIGALRM), None)
    _Present.library.alarm(_LAST_SECONDS)


def _told_exit(status: int) -> NoReturn:
    """Stands in the place of `os._exit`."""
    words = _Present.words
    if words is not None:
        _end_in_time()
        try:
            words.dying(f"user code ended the process with os._exit({status})")
        except Exception as error:  # the process ends whatever is told
            os.write(2, f"the end of the process was not told: {error!r}\n".encode())
    _exit(status)
