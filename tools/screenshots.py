"""Take the pictures of docs/dashboard.md, of a demo that runs, with Chromium; see `make screenshots`."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from tests.browser.webdriver import Browser  # noqa: E402 - it is not installed

ADDRESS = "127.0.0.1:8479"
PICTURES = ROOT / "docs" / "images"
# How long the demo runs before: so that there is something to see.
BEFORE_S = float(os.environ.get("BEFORE_S", "150"))


def take(browser: Browser) -> None:
    """All pictures."""
    at = f"http://{ADDRESS}"
    browser.resize(1280, 860)
    browser.open(f"{at}/")
    browser.screenshot(PICTURES / "overview.png")
    browser.open(f"{at}/jobs?q=state:failed")
    browser.screenshot(PICTURES / "jobs.png")
    browser.click("td a.mono")
    browser.wait_text("Why:")
    browser.screenshot(PICTURES / "job.png")
    browser.open(f"{at}/handler?task=discount")
    browser.type("#sample", '{"order": 7, "price": 120}')
    browser.click_text("button", "Try")
    browser.wait_text("108", "#trial")
    browser.screenshot(PICTURES / "handler.png")
    browser.dark(True)
    browser.open(f"{at}/tasks")
    browser.screenshot(PICTURES / "tasks-dark.png")
    browser.resize(390, 844)
    browser.open(f"{at}/")
    browser.screenshot(PICTURES / "narrow-dark.png")


def main() -> None:
    """Run the demo, wait, and take the pictures."""
    PICTURES.mkdir(exist_ok=True)
    demo = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "demo.py")], env=os.environ | {"DEMO_HTTP": ADDRESS}
    )
    try:
        time.sleep(BEFORE_S)
        with tempfile.TemporaryDirectory() as folder:
            browser = Browser(Path(folder))
            try:
                take(browser)
            finally:
                browser.close()
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait(60)


if __name__ == "__main__":
    main()
