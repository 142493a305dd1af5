"""A headless Chromium that tells what went wrong while it showed a page: failed requests, errors of scripts.

Owner: the test that opened it. It starts with a folder of its own and asks nobody but the server under test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.services.system_packages import CHROMIUM_DRIVER_PACKAGE, CHROMIUM_PACKAGE, program

#: Seconds that one page may take on a busy machine.
PATIENCE = 180.0
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1600,1000",
)
#: Seconds between two looks at a page: each takes the browser's own time.
_LOOK = 0.2
#: The script of a worker: the browser tells of its end to the worker alone.
_OF_WORKERS = "/worker/"
#: Of a request that the page itself gave up, as when it shows another one.
_GIVEN_UP = "net::ERR_ABORTED"


@dataclass
class Traffic:
    """What the browser has asked since the last look."""

    under_way: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


class Browser:
    """One window."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self._traffic = Traffic()
        self._addresses: dict[str, str] = {}

    def show(self, address: str, is_there: Callable[[str], bool]) -> list[str]:
        """Goes to an address and waits until `is_there` says so of the visible text and nothing is being loaded.

        Returns what failed: requests, errors in the console, or that the page never came to be.
        """
        self._traffic = Traffic(under_way=self._traffic.under_way)
        self.driver.get(address)
        return self.stay(is_there)

    def stay(self, is_there: Callable[[str], bool], seconds: float = PATIENCE) -> list[str]:
        """Waits on the page that is shown, which asks anew from time to time; what failed, as `show` tells."""

        # A page that asks anew may never be without a request: those under way are waited for, and then the next ones.
        awaited: set[str] = set()
        waits = 2

        def done(driver: Any) -> bool:
            nonlocal awaited, waits
            self._look()
            if not is_there(self.text()):
                return False
            under_way = set(self._traffic.under_way)
            if not awaited & under_way:
                awaited, waits = under_way, waits - 1
            return not under_way or waits < 0

        try:
            WebDriverWait(self.driver, seconds, poll_frequency=_LOOK).until(done)
        except TimeoutException:
            waited = ", ".join(self._traffic.under_way.values()) or "a text that is not there"
            self._traffic.failures.append(f"waited for {waited}: {self.text()[:500]!r}")
        self._look()
        failures, self._traffic.failures = self._traffic.failures, []
        return failures + self._console()

    def leave(self) -> None:
        """Shows nothing: what the page had begun ends with it."""
        self.driver.get("about:blank")
        self._look()
        self._traffic.under_way.clear()

    def has(self, selector: str) -> bool:
        """Whether the page has such an element."""
        return bool(self.driver.find_elements("css selector", selector))

    def text(self) -> str:
        """All that is visible; editors write their spaces as others than those of a keyboard."""
        shown = self.driver.execute_script("return document.body ? document.body.innerText : ''")
        return str(shown).replace("\xa0", " ")

    def picture(self, path: Path) -> None:
        """Writes a picture of the window."""
        self.driver.save_screenshot(str(path))

    def _console(self) -> list[str]:
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def _look(self) -> None:
        for entry in self.driver.get_log("performance"):  # type: ignore[no-untyped-call]
            message = json.loads(entry["message"])["message"]
            self._note(message["method"], message["params"])

    def _note(self, method: str, said: dict[str, Any]) -> None:
        traffic, request = self._traffic, said.get("requestId", "")
        if method == "Network.requestWillBeSent":
            address = said["request"]["url"]
            if address.startswith("http"):
                self._addresses[request] = address
                if _OF_WORKERS not in address:
                    traffic.under_way[request] = address
        elif method == "Network.responseReceived" and said["response"]["status"] >= 400:
            traffic.failures.append(f"{said['response']['status']} {said['response']['url']}")
        elif method in ("Network.loadingFinished", "Network.loadingFailed"):
            traffic.under_way.pop(request, None)
            # One without an address is the browser's own, before it shows a page.
            address = self._addresses.pop(request, "")
            if address and method.endswith("Failed") and said["errorText"] != _GIVEN_UP:
                traffic.failures.append(f"{said['errorText']} {address}")


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser for the block; `folder` is new and empty, for its profile."""
    options = webdriver.ChromeOptions()
    options.binary_location = program("chromium", CHROMIUM_PACKAGE)
    for flag in (*_FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = Service(program("chromedriver", CHROMIUM_DRIVER_PACKAGE))
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(PATIENCE)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
