"""Debian's Chromium, driven through its debugging pipe: no driver and no package is needed."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--hide-scrollbars", "--disable-background-networking"),
    "--remote-debugging-pipe",
)


class Browser:
    """One page in a browser without a window. ``complaints`` are errors of its console."""

    def __init__(self, folder: Path, width: int = 1280, height: int = 900, *, dark: bool = False):
        assert CHROMIUM is not None
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        command = f'exec 3<&{read} 4>&{write}; exec "$@"'
        words = [CHROMIUM, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
        with (folder / "chromium.log").open("w") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", command, "bash", *words], pass_fds=(read, write),
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        os.close(read)
        os.close(write)
        self._numbers = itertools.count(1)
        self._text = b""
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        self.resize(width, height)
        self.set_dark(dark)

    def resize(self, width: int, height: int) -> None:
        phone = width < 600
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=phone)  # fmt: skip

    def set_dark(self, dark: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address: str) -> None:
        self.ask("Page.navigate", url=address)

    def evaluate(self, code: str) -> Any:
        """The value of an expression in the page; of a promise, what it comes to."""
        found = self.ask("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, code: str, seconds: float = 20.0) -> Any:
        """Wait until an expression in the page is true, and return its value."""
        until = time.monotonic() + seconds
        while not (value := self.evaluate(code)):
            assert time.monotonic() < until, f"never true: {code}; {self.complaints}"
            time.sleep(0.1)
        return value

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot")["data"]))

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the Chrome DevTools Protocol for the page."""
        return self._ask(method, self._session, **parameters)

    def _ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 30.0
        while True:
            while b"\0" in self._text:
                text, _, self._text = self._text.partition(b"\0")
                told = json.loads(text)
                if told.get("id") == number:
                    assert "error" not in told, told
                    return told["result"]
                self._note(told)
            assert select.select([self._read], [], [], max(0.0, until - time.monotonic()))[0], (
                method
            )
            more = os.read(self._read, 1 << 20)
            assert more, "the browser has ended; see chromium.log"
            self._text += more

    def _note(self, told: dict[str, Any]) -> None:
        about = told.get("params", {})
        if told.get("method") == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.complaints.append(about["entry"]["text"])
        elif told.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(about["exceptionDetails"]))

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(AssertionError, OSError):
            self._ask("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10.0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # the group that we have started
        self._process.wait()
        os.close(self._read)
        os.close(self._write)
