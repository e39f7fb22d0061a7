"""A real browser for pages: headless Chromium, what a reader sees of a page, all that it holds, and its picture."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from tests.waiting import wait_until

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
needs_browser = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="chromium is not installed (Debian: apt-get install chromium chromium-driver)",
)


class Browser:
    """One window."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver

    def open(self, url: str) -> None:
        """Go there, and wait until the page is loaded; what its scripts fetch may come later."""
        self._driver.get(url)

    def text(self) -> str:
        """What a reader sees."""
        return str(self._driver.execute_script("return document.body ? document.body.innerText : ''"))

    def source(self) -> str:
        """All that the page holds now, hidden parts and attributes too."""
        return self._driver.page_source

    def await_text(self, *texts: str, timeout_s: float = 20) -> str:
        """What a reader sees once all `texts` are in it."""
        seen = ""

        def look() -> bool:
            nonlocal seen
            seen = self.text()
            return all(text in seen for text in texts)

        try:
            wait_until(look, timeout_s=timeout_s, description=f"{self._driver.current_url} shows {texts}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows:\n{seen[-2000:]}") from error
        return seen

    def errors(self) -> list[str]:
        """What the page's scripts complained of since the last call: errors, and files that could not be had."""
        entries = cast(Any, self._driver).get_log("browser")
        return [str(entry["message"]) for entry in entries if entry["level"] == "SEVERE"]

    def picture(self, path: Path, *, width: int, height: int | None = None) -> None:
        """The page as a PNG of that width; `height`: no more than its top."""
        self._show(width, height or 1)
        if height is None:
            self._show(width, int(self._driver.execute_script("return document.documentElement.scrollHeight")))
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self._driver.save_screenshot(str(path)):
            raise OSError(f"no picture could be written: {path}")

    def _show(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@contextmanager
def opened_browser(profile: Path) -> Iterator[Browser]:
    """A browser that knows nothing but the new folder `profile`, closed at the end."""
    options = Options()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        driver.set_page_load_timeout(60)
        yield Browser(driver)
    finally:
        try:
            driver.quit()
        except WebDriverException:
            driver.service.stop()
