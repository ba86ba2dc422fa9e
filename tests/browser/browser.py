"""A headless Chromium that opens local pages, and what a test can ask of it.

A page is opened at the width of a phone or of a desktop. Console errors and requested addresses are kept until the next
page is opened. Only this machine's name is resolved: nothing comes from outside.
"""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--window-size=1280,900",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
)
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost"})
# Neither leaves the page.
INLINE_SCHEMES = frozenset({"about", "blob", "data", "file"})
# A busy machine is slow, and that is no failure.
PAGE_LOAD_S = 120


class Screen(NamedTuple):
    """The size of a page, and whether it is shown as on a phone, with the page's viewport setting."""

    width: int
    height: int
    mobile: bool


PHONE = Screen(390, 844, mobile=True)
DESKTOP = Screen(1280, 900, mobile=False)


def missing() -> str | None:
    """Return why there is no browser, or None."""
    absent = [program for program in ("chromium", "chromedriver") if shutil.which(program) is None]
    return f"no {' and no '.join(absent)}; as root, tools/browser.sh installs them with apt-get" if absent else None


class Browser:
    """One window of a headless Chromium."""

    def __init__(self) -> None:
        chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
        assert chromium is not None, missing()
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for argument in ARGUMENTS:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(executable_path=driver))
        self.driver.set_page_load_timeout(PAGE_LOAD_S)
        self.driver.set_script_timeout(PAGE_LOAD_S)
        self._addresses: list[str] = []
        self._errors: list[str] = []

    def open(self, page: Path | str, screen: Screen = DESKTOP, *, dark: bool = False) -> None:
        """Show a file, or a page of a local server, and drop the logs of earlier pages."""
        size = {"width": screen.width, "height": screen.height, "deviceScaleFactor": 1, "mobile": screen.mobile}
        self._tell("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._tell("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get("about:blank")
        self._read_logs()
        self._addresses.clear()
        self._errors.clear()
        self.driver.get(page.resolve().as_uri() if isinstance(page, Path) else page)
        # The page may be loaded before it is laid out.
        self.driver.execute_async_script(LAID_OUT)

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what a JavaScript function body returns in the page."""
        return self.driver.execute_script(script, *arguments)

    def wait_until(self, script: str, seconds: float = 60) -> None:
        """Wait until a JavaScript expression is true, for what a page draws after it was loaded."""
        WebDriverWait(self.driver, seconds).until(lambda _: self.run(f"return Boolean({script})"), script)

    def screenshot(self, path: Path) -> Path:
        """Write a picture of the whole page, including what is below the screen."""
        width, height = self.run(SIZE)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        picture = self._tell("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True, "clip": clip})
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(picture["data"]))
        return path

    def console_errors(self) -> list[str]:
        """The console errors of the page, including failed loads."""
        self._read_logs()
        return list(self._errors)

    def requested(self) -> list[str]:
        """Every address that the page requested, in order."""
        self._read_logs()
        return list(self._addresses)

    def outside_requests(self) -> list[str]:
        """The requested addresses that are not on this machine."""
        return [address for address in self.requested() if not _is_local(address)]

    def overflow(self) -> list[str]:
        """Return what is wider than the screen, outermost first; empty for a page that does not scroll sideways."""
        return list(self.run(OVERFLOW))

    def close(self) -> None:
        """End the browser and its driver."""
        self.driver.quit()

    def _tell(self, command: str, parameters: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.driver.execute_cdp_cmd(command, parameters)
        return answer

    def _read_logs(self) -> None:
        self._errors += [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        self._addresses += [
            event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"
        ]


def _is_local(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme in INLINE_SCHEMES or parts.hostname in LOCAL_HOSTS


LAID_OUT = """
    const done = arguments[0];
    requestAnimationFrame(() => requestAnimationFrame(() => done()));
"""
SIZE = """
    const root = document.documentElement;
    return [root.clientWidth, Math.max(root.scrollHeight, root.clientHeight)];
"""
# An element that scrolls by itself, such as a wide table in a box, does not make the page overflow.
OVERFLOW = """
    const root = document.documentElement;
    if (Math.max(root.scrollWidth, document.body.scrollWidth) <= root.clientWidth) return [];
    const wide = [...document.querySelectorAll("body *")].filter(
        (element) => element.getBoundingClientRect().right > root.clientWidth + 1
    );
    const name = (element) => element.tagName.toLowerCase() + (element.id ? "#" + element.id : "")
        + [...element.classList].map((one) => "." + one).join("");
    return [`the page: ${root.scrollWidth} of ${root.clientWidth}`, ...wide.map(name)];
"""

Serve = Callable[[Path], str]
