"""A headless Chromium that a test drives by the WebDriver protocol, of Debian's packages chromium and chromium-driver.

Rule: it reaches no network but this machine, and is gone with its driver when the context ends.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keyedwm.testing.local import free_ports

_CHROMIUM, _DRIVER = "chromium", "chromedriver"
_ARGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,1000")
_LOOPBACK = "127.0.0.1"
_START_LIMIT_S, _CALL_LIMIT_S = 60, 120


def is_there() -> bool:
    """Whether Chromium and its driver are installed."""
    return shutil.which(_CHROMIUM) is not None and shutil.which(_DRIVER) is not None


class Browser:
    """One window; commands are those of the protocol."""

    def __init__(self, address: str) -> None:
        self._address = address
        options = {"args": _ARGS, "binary": shutil.which(_CHROMIUM)}
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self._session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]

    def open(self, page: Path) -> None:
        """Open a file of this machine."""
        self._post("url", {"url": page.absolute().as_uri()})

    def run(self, code: str, *values: Any) -> Any:
        """Run the body of a function in the page; return what it returns."""
        return self._post("execute/sync", {"script": code, "args": values})

    def point(self, *acts: dict[str, Any]) -> None:
        """Move, press and release the mouse."""
        self._act("pointer", acts, parameters={"pointerType": "mouse"})

    def wheel(self, x: int, y: int, delta: int) -> None:
        """Turn the wheel at a point of the window."""
        self._act("wheel", [{"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": delta, "duration": 0}])

    def log(self) -> list[str]:
        """Return what the console has said since the last call."""
        return [f"{entry['level']}: {entry['message']}" for entry in self._post("se/log", {"type": "browser"})]

    def end(self) -> None:
        """Close the window."""
        self._call("DELETE", f"/session/{self._session}")

    def _act(self, kind: str, acts: Sequence[dict[str, Any]], **more: Any) -> None:
        self._post("actions", {"actions": [{"type": kind, "id": kind, "actions": list(acts), **more}]})

    def _post(self, command: str, value: Any) -> Any:
        return self._call("POST", f"/session/{self._session}/{command}", value)

    def _call(self, method: str, path: str, value: Any = None) -> Any:
        body = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(self._address + path, data=body, method=method)  # noqa: S310 (this machine's)
        with urllib.request.urlopen(request, timeout=_CALL_LIMIT_S) as answer:  # noqa: S310
            return json.loads(answer.read())["value"]


@contextmanager
def browser() -> Iterator[Browser]:
    """A window for the time of the `with`."""
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [_DRIVER, f"--port={port}", "--log-level=SEVERE"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        window = Browser(_ready(f"http://{_LOOPBACK}:{port}"))
        try:
            yield window
        finally:
            window.end()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_START_LIMIT_S)


def _ready(address: str) -> str:
    until_s = time.monotonic() + _START_LIMIT_S
    while True:
        try:
            with urllib.request.urlopen(f"{address}/status", timeout=1) as answer:  # noqa: S310
                if json.loads(answer.read())["value"]["ready"]:
                    return address
        except OSError:
            if time.monotonic() > until_s:
                raise
        time.sleep(0.05)
