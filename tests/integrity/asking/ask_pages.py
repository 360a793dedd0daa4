"""What the pages of the dashboard say over HTTP, to who has signed in, about `readers`' store."""

import re

from loom_audit.errors import AuditError
from loom_audit.web.shared.pages import STATUS
from tests.integrity.asking.readers import Answer, Made, Opened, Reader, Readers

LISTED = re.compile(
    r'<nav class="pager".*?</nav>|<section class="(?:why|standing)".*?</section>'
    r'|<form class="filters pickers".*?</form>',
    re.DOTALL,
)
"""Of the page of a call: links to the next of its session, which prompt and words came before it,
and what changed its paths later. Of two points: which others are offered.
"""
NONCE = re.compile(r'nonce="[^"]*"')
PROBLEM = re.compile(r"<p[^>]*>[^\n]*<code>CORRUPT</code>[^\n]*")


def pages(made: Made) -> Readers:
    url, first, last = f"/w/{made.id}", made.numbers[0], made.numbers[-1]
    plan = f"{url}/plan?verb="
    verified = {
        **{f"call {number}": f"{url}/c/{number}" for number in made.numbers[::3]},
        "folder": f"{url}/at/head/",
        "folder at a point": f"{url}/at/{made.middle}/src",
        "file": f"{url}/at/head/src/0.py",
        "file at a point": f"{url}/at/@v1/src/1.py",
        "binary file": f"{url}/at/head/out/made.bin",
        "download": f"{url}/raw/head~4/src/0.py",
        "compare": f"{url}/compare/{first}..{last}",
        "compare back": f"{url}/compare/head..{made.middle}",
        "undo": f"{plan}undo",
        "revert": f"{plan}revert&target={first}",
        "rollback": f"{plan}rollback&target={made.middle}",
        "rollback of all": f"{plan}rollback&target=session:{made.sessions[-1]}&outside=1",
    }
    lists = {
        "no file": f"{url}/at/head/new.txt",
        "workspaces": "/",
        "overview": f"{url}/",
        "timeline": f"{url}/calls",
        "session": f"{url}/s/{made.sessions[0]}",
        "history": f"{url}/history/src",
        "status": f"{url}/status",
    }
    return Readers(
        {f"page: {name}": _page(path) for name, path in verified.items()},
        {f"page: {name}": _page(path) for name, path in lists.items()}
        | {"page: verify": _page(f"{url}/proof", post=True)},
    )


def _page(path: str, *, post: bool = False) -> Reader:
    def ask(opened: Opened) -> Answer:
        try:
            client = opened.client
        except AuditError as error:
            return Answer(error.message, error.code)
        answer = client.post(path) if post else client.get(path)
        if "html" not in answer.headers["content-type"]:
            return Answer((answer.status_code, answer.content))
        main = answer.text.partition("<main")[2].partition("</main>")[0]
        main = NONCE.sub("", LISTED.sub("", main))
        if answer.status_code >= 400:
            [code] = re.findall(r'<p class="faint"><code>([A-Z_]+)</code>', main)
            assert answer.status_code == STATUS.get(code, 500)
            return Answer((answer.status_code, main), code)
        problem = "CORRUPT" if PROBLEM.search(main) else ""
        texts = PROBLEM.sub("", main).replace("<", "\n<").splitlines()
        return Answer((answer.status_code, main), problem, tuple(text.strip() for text in texts))

    return ask
