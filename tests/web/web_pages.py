"""What the tests record, and one address of every kind of page."""

from typing import Any

from loom_audit.web.shared.urls import quoted

HOSTILE = (
    "<script>window.hacked = 1</script>\n"
    '<img src=x onerror="window.hacked = 2">\n'
    '<div data-hx-get="/hacked" hx-get="/hacked" data-hx-trigger="load" hx-trigger="load">x</div>\n'
    "\x1b[2J\x1b]0;title\x07 \u202etxt.exe\u202c zero\u200bwidth {{ 7 * 7 }}\n"
    "</code></pre></td></tr></table><h1>escaped</h1>\n" + "long " * 2000 + "\n"
)
STRANGE = "strange \udcff\udcfe <b>&amp; 'quoted' \"name\" %41 #?.txt"


def pages(recorded: Any) -> dict[str, str]:
    """One address of every kind of page."""
    url, numbers = recorded.url, recorded.numbers
    return {
        "workspaces": "/",
        "overview": f"{url}/",
        "calls": f"{url}/calls",
        "session": f"{url}/s/{recorded.session}",
        "find": f"{url}/find?q=script",
        "find nothing": f"{url}/find?q=no_such_word",
        "turn": f"{url}/s/{recorded.session}?turn={recorded.said['big']}",
        "steps": f"{url}/s/{recorded.session}/steps",
        "commands": f"{url}/s/{recorded.session}/commands",
        "taken back": f"{url}/s/{recorded.session}/taken-back",
        "what failed": f"{url}/s/{recorded.session}/only/failed",
        "calls of a session": f"{url}/s/{recorded.session}/calls",
        "prompt": f"{url}/said/{recorded.said['read']}",
        "call": f"{url}/c/{numbers['hostile']}",
        "shell call": f"{url}/c/{numbers['shell']}",
        "failed call": f"{url}/c/{numbers['unknown']}",
        "folder": f"{url}/at/head/",
        "file": f"{url}/at/head/" + quoted("docs/evil <i>.html", safe="/"),
        "strange file": f"{url}/at/head/" + quoted(STRANGE),
        "binary file": f"{url}/at/{numbers['big']}/build/out.o",
        "blame": f"{url}/at/head/notes.txt?view=blame",
        "blame of a strange file": f"{url}/at/head/" + quoted(STRANGE) + "?view=blame",
        "blame of a binary file": f"{url}/at/{numbers['big']}/build/out.o?view=blame",
        "symlink": f"{url}/at/head/link",
        "compare": f"{url}/compare/{numbers['read']}..head",
        "compare by session": f"{url}/compare/{numbers['read']}..head?by={recorded.session}",
        "more context": f"{url}/c/{numbers['first']}?diff=src/main.py&context=25",
        "history": f"{url}/history/notes.txt",
        "plan": f"{url}/plan?verb=revert&target={numbers['notes']}",
        "blocked plan": f"{url}/plan?verb=revert&target={numbers['first']}",
        "rollback plan": f"{url}/plan?verb=rollback&target={numbers['read']}",
        "status": f"{url}/status",
        "needs": f"{url}/needs",
        "proof": f"{url}/proof",
        "sign out": "/sign-out",
    }
