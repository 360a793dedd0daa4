"""A click returns before the page that it leads to is there, and most reads wait for nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Locator, Page


@contextmanager
def next_page(page: Page) -> Iterator[None]:
    """What is done within leads to another page, which is there whole at the end."""
    with page.expect_event("domcontentloaded"):
        yield
    page.wait_for_load_state()


def follow(what: Locator) -> None:
    """Click on what leads to another page, and wait for that."""
    with next_page(what.page):
        what.click()
