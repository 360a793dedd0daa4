"""`loom-audit proxy`: web search and the oracle for tools that hold no keys."""

from typing import Annotated

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.parameters import option

PORT = 8643


@command(examples=("loom-audit proxy",))
def proxy(
    invocation: Invocation,
    port: Annotated[
        int, option(min=1, max=65535, metavar="N", help="The port on 127.0.0.1.")
    ] = PORT,
) -> None:
    """Serve web search and the oracle to the tools, which hold no keys.

    The keys come from this process's environment: LOOM_PROXY_GOOGLE_KEY and
    LOOM_PROXY_GOOGLE_ENGINE, LOOM_PROXY_SERPER_KEY, LOOM_PROXY_ORACLE_URL (any endpoint that is
    compatible with OpenAI's), LOOM_PROXY_ORACLE_KEY and LOOM_PROXY_ORACLE_MODEL. Put
    `proxy_url = "http://127.0.0.1:8643"` into tools.toml.
    """
    output = invocation.output
    from loom_audit.proxy import read_keys, serve_proxy

    keys = read_keys()
    ready = keys.ready

    def listening(url: str) -> None:
        if output.json:
            output.record({"url": url, **ready})
        else:
            configured = ", ".join(name for name, there in ready.items() if there) or "nothing"
            output.line(f"proxy on {url} for {configured}  (Ctrl-C ends it)")
            if not any(ready.values()):
                output.note("no keys are set; `loom-audit proxy --help` names them")
        output.stdout.flush()

    serve_proxy(keys, port, listening=listening)
