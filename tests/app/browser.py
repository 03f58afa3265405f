"""A real browser, Debian's chromium, and a dashboard that is served to it from a thread."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from fedcircuits.app.dashboard.command import bound
from fedcircuits.app.dashboard.server import Shown, application

HOSTS = ("localhost", "127.0.0.1")
WAIT = 180  # seconds, of which a quiet machine needs few


def lacking() -> str:
    """What is missing for a browser, "" if nothing is."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(missing)}: apt-get install chromium chromium-driver" * bool(
        missing
    )


@contextmanager
def chromium(width: int = 1200, height: int = 900) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for word in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage",
                 "disable-background-networking", "disable-component-update", "no-first-run",
                 f"window-size={width},{height}"):  # fmt: skip
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(
        options, webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    )
    try:
        yield driver
    finally:
        driver.quit()


@contextmanager
def served(shown: Shown, token: str = "") -> Iterator[str]:
    """The address of a dashboard."""
    line = bound("127.0.0.1", 0)
    config = uvicorn.Config(application(shown, HOSTS, token), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [line]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{line.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(20)
        line.close()


def until(driver: Any, holds: Callable[[], object]) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(driver, WAIT, 0.1).until(lambda _: holds())


def css(driver: Any, selector: str) -> Any:
    return driver.find_element("css selector", selector)


def script(driver: Any, text: str) -> Any:
    return driver.execute_script(text)


def complaints(driver: Any) -> list[str]:
    """Errors of the page, and requests to other hosts than the dashboard's."""
    found = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = urlsplit(message["params"]["request"]["url"])
            if url.scheme not in ("data", "blob", "about", "chrome") and url.hostname not in HOSTS:
                found.append(f"a request to {url.geturl()}")
    return found


def picture(driver: Any, path: Path, width: int, height: int) -> None:
    """A screenshot of the page at that size."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_script("window.dispatchEvent(new Event('resize'))")
    driver.execute_async_script("setTimeout(arguments[0], 400)")
    driver.save_screenshot(str(path))
