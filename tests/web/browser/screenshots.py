"""Takes the pictures of the documents from the dashboard over a new demonstration.

`make screenshots` runs `python -m tests.web.browser.screenshots docs` after a change that shows.
"""

import os
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from loom_audit.api.face import open_store
from loom_audit.demo.recording import Demo
from loom_audit.web.shared.admission import Admission
from tests.given.demo import run_demo
from tests.web.browser.following import follow
from tests.web.conftest import CHROMIUM, FLAGS, Live, Recorded, serving

WIDTH, HEIGHT = 1280, 812
PERSON = "person:ada"


def take(browser: Browser, live: Live, demo: Demo, url: str, folder: Path) -> None:
    """Review the first session, and undo what the second destroyed, as a person does it, with a
    picture on the way.
    """
    context = live.visit(browser, viewport={"width": WIDTH, "height": HEIGHT})
    page = context.new_page()
    page.goto(f"{live.address}{url}/s/{demo.sessions[0]}")
    page.screenshot(path=folder / "dashboard-review.png")
    page.goto(f"{live.address}{url}/c/{demo.numbers['rm']}")
    follow(page.get_by_role("button", name="Undo this call"))
    page.get_by_role("button", name="Carry out").wait_for()
    page.screenshot(path=folder / "dashboard-plan.png")
    page.get_by_role("button", name="Carry out").click()
    page.wait_for_url("**/c/*")
    page.goto(f"{live.address}{url}/")
    page.locator("tr", has_text="cp -r toolkit").get_by_role("button", name="Undo").click()
    page.locator("tr.nested", has_text="revert").nth(1).wait_for()
    page.goto(f"{live.address}{url}/")
    page.locator("tr[hidden]").wait_for(state="detached")  # its lines are counted
    page.wait_for_load_state("networkidle")  # those of the sessions too
    page.screenshot(path=folder / "dashboard.png")
    context.close()


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="loom-audit-demo-") as made:
        os.environ["LOOM_AUDIT_HOME"] = f"{made}/home"
        with open_store() as store:
            demo = run_demo(store, Path(made))
            recorded = Recorded(store, store.workspace(demo.root), Path(demo.root))
            with serving(recorded, admission=Admission(PERSON)) as live, sync_playwright() as play:
                browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                take(browser, live, demo, recorded.url, folder)
                browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
