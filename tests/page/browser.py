"""Drives headless Chromium over its debugging pipe; needs nothing but the browser itself.

``screenshot`` takes a picture of a page; ``Chromium`` and ``Tab`` are for
tests that look closer.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

Json = dict[str, Any]

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--mute-audio",
    # Nothing but this machine can be reached, whatever a page asks for.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--remote-debugging-pipe",
)

# The browser reads commands from descriptor 3 and answers on descriptor 4.
_LAUNCH = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3])
os.dup2(read, 3); os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

PAGE_READY = "document.readyState === 'complete' && !document.querySelector('main[hidden]')"
"""JavaScript: the page is loaded, and shows its main part if it has one."""


def find_chromium() -> str | None:
    """Path of a Chromium or Chrome on this machine, None if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


def screenshot(
    url: str,
    path: str | Path,
    width: int,
    height: int,
    dark: bool = False,
    *,
    scale: float = 1.0,
    full_page: bool = False,
    ready: str = PAGE_READY,
) -> Path:
    """Opens ``url`` and writes what it shows as PNG.

    Args:
        url: address to open.
        path: file to write.
        width: width of the window in CSS pixels.
        height: height of the window in CSS pixels.
        dark: show the page as to a reader who prefers dark colours.
        scale: device pixels per CSS pixel.
        full_page: take the whole page, however long it is, not only the window.
        ready: JavaScript that is true when the picture may be taken.

    Raises:
        RuntimeError: there is no Chromium, nothing at ``url``, or it is not ready in time.
    """
    with Chromium() as browser:
        tab = browser.open(url, width=width, height=height, dark=dark, scale=scale)
        tab.wait_for(ready)
        return tab.screenshot(path, full_page=full_page)


class Chromium:
    """One headless browser with a profile of its own; a context manager.

    Raises:
        RuntimeError: Chromium is not installed.
    """

    def __init__(self, binary: str | None = None) -> None:
        binary = binary or find_chromium()
        if binary is None:
            raise RuntimeError("Chromium is not installed (Debian: apt install chromium)")
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        self._log = (Path(self._profile.name) / "stderr.log").open("w+b")
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        profile = f"--user-data-dir={self._profile.name}/profile"
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _LAUNCH, str(commands), str(answers)),
                *(binary, *_FLAGS, profile, "about:blank"),
            ],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)
        fcntl.fcntl(self._read, fcntl.F_SETFL, os.O_NONBLOCK)
        self._buffer = bytearray()
        self._last_id = 0
        self._answers: dict[int, Json] = {}
        self._listeners: dict[str, Callable[[str, Json], None]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(
        self,
        url: str,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        scale: float = 1.0,
        mobile: bool = False,
        timezone: str = "",
    ) -> Tab:
        """Opens ``url`` in a new tab and returns as soon as loading has begun.

        Raises:
            RuntimeError: there is nothing at ``url``.
        """
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        tab = Tab(self, target, attached["sessionId"])
        self._listeners[attached["sessionId"]] = tab.on_event
        for domain in ("Page", "Runtime", "Network", "Log"):
            tab.call(f"{domain}.enable")
        tab.resize(width, height, scale=scale, mobile=mobile)
        tab.prefer(dark=dark)
        if timezone:
            tab.call("Emulation.setTimezoneOverride", {"timezoneId": timezone})
        if problem := tab.call("Page.navigate", {"url": url}).get("errorText"):
            tab.close()
            raise RuntimeError(f"{url} cannot be opened: {problem}")
        return tab

    def call(
        self, method: str, params: Json | None = None, *, session: str = "", within_s: float = 200.0
    ) -> Json:
        """Sends one command and returns its result.

        Raises:
            RuntimeError: the browser refused it, ended, or did not answer ``within_s``.
        """
        self._last_id += 1
        command: Json = {"id": self._last_id, "method": method, "params": params or {}}
        if session:
            command["sessionId"] = session
        try:
            os.write(self._write, json.dumps(command).encode() + b"\0")
        except BrokenPipeError:
            raise RuntimeError(f"Chromium has ended: {self._log_tail()}") from None
        deadline = time.monotonic() + within_s
        while self._last_id not in self._answers:
            if time.monotonic() > deadline:
                raise RuntimeError(f"Chromium did not answer {method} within {within_s} s")
            self.pump(0.05)
        answer = self._answers.pop(self._last_id)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: Json = answer["result"]
        return result

    def pump(self, wait_s: float) -> None:
        """Read the browser's messages, waiting up to ``wait_s`` for the first one."""
        readable, _, _ = select.select([self._read], [], [], wait_s)
        if not readable:
            return
        content = os.read(self._read, 1 << 20)
        if not content:
            raise RuntimeError(f"Chromium has ended: {self._log_tail()}")
        self._buffer += content
        *messages, rest = bytes(self._buffer).split(b"\0")
        self._buffer = bytearray(rest)
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            elif listener := self._listeners.get(message.get("sessionId", "")):
                listener(message["method"], message["params"])

    def close(self) -> None:
        """Ends the browser with all its processes and removes its profile."""
        with contextlib.suppress(RuntimeError):
            self.call("Browser.close", within_s=5.0)
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._read)
        os.close(self._write)
        self._log.close()
        self._profile.cleanup()

    def _log_tail(self) -> str:
        self._log.seek(0)
        return self._log.read()[-2000:].decode(errors="replace")


class Tab:
    """One open page.

    Attributes:
        requests: addresses that the page has asked for, in order.
        complaints: console errors, uncaught exceptions and failed requests, one line each.
    """

    def __init__(self, browser: Chromium, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def call(self, method: str, params: Json | None = None) -> Json:
        return self._browser.call(method, params, session=self._session)

    def on_event(self, method: str, params: Json) -> None:
        """Notes what the browser reports about this page."""
        match method:
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                words = [str(a.get("value", a.get("description"))) for a in params["args"]]
                self.complaints.append(f"console.{params['type']}: {' '.join(words)}")
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                text = details.get("exception", {}).get("description", details["text"])
                self.complaints.append(f"uncaught: {text}")
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                entry = params["entry"]
                self.complaints.append(f"log: {entry['text']} {entry.get('url', '')}".strip())

    def resize(self, width: int, height: int, *, scale: float = 1.0, mobile: bool = False) -> None:
        """Gives the page a window of this size in CSS pixels; ``mobile`` makes it a phone's."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", metrics)
        self.call("Emulation.setTouchEmulationEnabled", {"enabled": mobile})

    def prefer(self, *, dark: bool) -> None:
        """Sets the reader's preferred colours; motion is always reduced, so pictures are still."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.call("Emulation.setEmulatedMedia", {"features": features})

    def evaluate(self, expression: str) -> Any:
        """Value of a JavaScript expression; a promise is awaited.

        Raises:
            RuntimeError: the expression throws.
        """
        result = self.call(
            "Runtime.evaluate",
            {"expression": expression, "awaitPromise": True, "returnByValue": True},
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            text = details.get("exception", {}).get("description", details["text"])
            raise RuntimeError(f"{expression}: {text}")
        return result["result"].get("value")

    def text(self, selector: str) -> str:
        """Visible text of the first element that matches; empty if none does."""
        return str(
            self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        )

    def wait_for(self, expression: str, within_s: float = 200.0) -> None:
        """Waits until a JavaScript expression is true.

        Raises:
            RuntimeError: it is not ``within_s``; the message has the page's text.
        """
        deadline = time.monotonic() + within_s
        problem = ""
        while time.monotonic() < deadline:
            try:
                if self.evaluate(expression):
                    return
            except RuntimeError as error:  # while the page is still being loaded
                problem = str(error)
            self._browser.pump(0.05)
        seen = self.evaluate("document.body.innerText")
        raise RuntimeError(
            f"not true within {within_s} s: {expression}\n{problem}\n"
            f"complaints: {self.complaints}\nthe page shows:\n{seen}"
        )

    def tap(self, selector: str) -> None:
        """Clicks an element in its middle, as a reader would."""
        box = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{box}.scrollIntoView({{block: 'center'}})")
        # What has just arrived is laid out in the next frame.
        frame = "requestAnimationFrame"
        self.evaluate(f"new Promise(done => {frame}(() => {frame}(done)))")
        x, y = self.evaluate(
            f"(r => [r.x + r.width / 2, r.y + r.height / 2])({box}.getBoundingClientRect())"
        )
        self.point(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", event)

    def choose_file(self, selector: str, path: Path) -> None:
        """Chooses a file of this machine, as in the dialog that the page may not open itself."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        found = self.call("DOM.querySelector", {"nodeId": root, "selector": selector})
        self.call("DOM.setFileInputFiles", {"files": [str(path)], "nodeId": found["nodeId"]})

    def point(self, x: float, y: float) -> None:
        """Moves the mouse pointer there."""
        self.call("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})

    def drag(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Presses the mouse button at one place and releases it at another."""
        for kind, x, y in (
            ("mouseMoved", x1, y1),
            ("mousePressed", x1, y1),
            ("mouseMoved", (x1 + x2) / 2, (y1 + y2) / 2),
            ("mouseMoved", x2, y2),
            ("mouseReleased", x2, y2),
        ):
            event = {"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1}
            self.call("Input.dispatchMouseEvent", event)

    def press(self, key: str) -> None:
        """Presses and releases a named key, such as ArrowLeft."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", {"type": kind, "key": key, "code": key})

    def screenshot(self, path: str | Path, *, full_page: bool = False) -> Path:
        """Writes what the page shows now as PNG and returns the file's path."""
        self.evaluate("new Promise(d => requestAnimationFrame(() => requestAnimationFrame(d)))")
        params: Json = {"format": "png"}
        if full_page:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            params |= {"captureBeyondViewport": True, "clip": clip}
        path = Path(path)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", params)["data"]))
        return path

    def close(self) -> None:
        self._browser.call("Target.closeTarget", {"targetId": self._target})
