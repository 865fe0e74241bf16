"""A headless Chromium for tests and benchmarks: the one that is installed, never a downloaded one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def lacking() -> str | None:
    """Why there is no browser here, or None."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "needs Playwright: python -m pip install axe-playwright-python"
    return None if executable() else "needs Chromium: apt-get install chromium"


def executable() -> str | None:
    """The installed browser."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """The running browser."""
    from playwright.sync_api import sync_playwright

    # Chromium has no sandbox for root; what it opens here are files that we wrote.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=executable(), args=options)
        try:
            yield running
        finally:
            running.close()
