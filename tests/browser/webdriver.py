"""A browser that tests drive: headless Chromium by the WebDriver protocol, which is JSON over HTTP."""

import base64
import http.client
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 60
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
    # Each frame of an animation is drawn by the processor.
    "--force-prefers-reduced-motion",
)
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Space": " ", "Escape": "\ue00c"}


class WebDriverError(Exception):
    """What the driver refused."""


class Browser:
    """One browser with one page."""

    def __init__(self, folder: Path) -> None:
        driver = shutil.which("chromedriver")
        chromium = shutil.which("chromium")
        assert driver is not None
        assert chromium is not None
        environment = os.environ | {"HOME": str(folder), "TMPDIR": str(folder)}
        self._process = subprocess.Popen(
            [driver, "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )
        self._connection = http.client.HTTPConnection("127.0.0.1", self._read_port(), timeout=SECONDS)
        arguments = [*ARGUMENTS, f"--user-data-dir={folder / 'profile'}"]
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": chromium, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = made["sessionId"]

    def _read_port(self) -> int:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "started successfully on port" in line:
                return int(line.rstrip(".\n").rpartition(" ")[2])
        raise WebDriverError("chromedriver did not start")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        raw = None if method != "POST" else json.dumps(body or {})
        self._connection.request(method, path, raw, {"Content-Type": "application/json"})
        reply = json.loads(self._connection.getresponse().read())["value"]
        if isinstance(reply, dict) and "error" in reply:
            raise WebDriverError(f"{reply['error']}: {reply['message']}")
        return reply

    def _do(self, path: str, **body: Any) -> Any:
        return self._ask("POST", f"/session/{self._session}{path}", body)

    # Pages

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is loaded."""
        self._do("/url", url=url)

    @property
    def url(self) -> str:
        """Where it is."""
        found: str = self._ask("GET", f"/session/{self._session}/url")
        return found

    def run(self, script: str, *args: Any) -> Any:
        """What a script returns in the page."""
        return self._do("/execute/sync", script=script, args=list(args))

    def text(self, selector: str = "body") -> str:
        """The visible text of an element."""
        found: str = self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return found

    def count(self, selector: str) -> int:
        """How many elements match."""
        found: int = self.run("return document.querySelectorAll(arguments[0]).length", selector)
        return found

    def _find(self, selector: str) -> str:
        element: str = self._do("/element", using="css selector", value=selector)[ELEMENT]
        return element

    def click(self, selector: str) -> None:
        """Press an element."""
        self._click(lambda: self._find(selector))

    def _click(self, find: Callable[[], str]) -> None:
        """Press what is found; a page that shows changes may have replaced it just then."""
        until = time.monotonic() + SECONDS
        while True:
            try:
                self._do(f"/element/{find()}/click")
                return
            except WebDriverError as error:
                if not str(error).startswith("stale element") or time.monotonic() > until:
                    raise

    def click_text(self, selector: str, text: str) -> None:
        """Press the first of several elements that has a text."""
        find = ".find(element => element.innerText.trim() == arguments[1])"
        script = f"return [...document.querySelectorAll(arguments[0])]{find}"

        def found() -> str:
            element = self.run(script, selector, text)
            assert element is not None, f"no {selector} says {text!r}"
            return str(element[ELEMENT])

        self._click(found)

    def type(self, selector: str, text: str) -> None:
        """Write into a field, instead of what is there."""
        element = self._find(selector)
        self._do(f"/element/{element}/clear")
        self._do(f"/element/{element}/value", text=text)

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        events = [
            {"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")
        ]
        self._do("/actions", actions=[{"type": "key", "id": "keys", "actions": events}])

    def accept(self) -> None:
        """Say yes to the question of a page."""
        self._do("/alert/accept")

    def wait(self, script: str, *args: Any, what: str = "") -> Any:
        """Wait until a script returns something true."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            if found := self.run(script, *args):
                return found
            time.sleep(0.05)
        raise AssertionError(f"never came: {what or script}; the page says: {self.text()[:1000]}")

    def wait_text(self, text: str, selector: str = "body") -> None:
        """Wait until an element contains a text."""
        script = "return (document.querySelector(arguments[0])?.innerText ?? '').includes(arguments[1])"
        self.wait(script, selector, text, what=text)

    # Looks

    def resize(self, width: int, height: int) -> None:
        """Have the window another size."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.cdp("Emulation.setDeviceMetricsOverride", **metrics)

    def dark(self, on: bool) -> None:
        """Have the system dark or light."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.cdp("Emulation.setEmulatedMedia", features=features)

    def cdp(self, command: str, **params: Any) -> Any:
        """A command of Chromium's own protocol."""
        return self._do("/goog/cdp/execute", cmd=command, params=params)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Save what is seen; `whole`: the page to its end."""
        shot = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    # What it noticed

    def complaints(self) -> list[str]:
        """What the console says since the last time, as far as it is an error or a warning."""
        found = self._do("/se/log", type="browser")
        return [f"{one['level']} {one['message']}" for one in found if one["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last time."""
        found = []
        for one in self._do("/se/log", type="performance"):
            message = json.loads(one["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found

    def tree(self) -> list[dict[str, Any]]:
        """The accessibility tree: what a screen reader gets."""
        self.cdp("Accessibility.enable")
        nodes: list[dict[str, Any]] = self.cdp("Accessibility.getFullAXTree")["nodes"]
        return [node for node in nodes if not node.get("ignored")]

    def cookies(self) -> list[dict[str, Any]]:
        """The cookies of the page."""
        found: list[dict[str, Any]] = self._ask("GET", f"/session/{self._session}/cookie")
        return found

    def forget(self) -> None:
        """Delete all cookies."""
        self._ask("DELETE", f"/session/{self._session}/cookie")

    def close(self) -> None:
        """End the browser."""
        try:
            self._ask("DELETE", f"/session/{self._session}")
        finally:
            self._connection.close()
            self._process.terminate()
            self._process.wait(SECONDS)
            assert self._process.stdout is not None
            self._process.stdout.close()
