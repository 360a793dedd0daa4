"""`loom-audit demo`: a real agent session, and what can be done with it."""

import shlex
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import asdict

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.dashboard import PORT, serve_dashboard, usable_port
from loom_audit.cli.shared.invocation import PROGRAM, Invocation
from loom_audit.cli.shared.output import Output, progress
from loom_audit.cli.shared.parameters import option
from loom_audit.model.text.display import count_text

if TYPE_CHECKING:
    from loom_audit.demo.proof import Proof
    from loom_audit.demo.recording import Demo


@command(
    examples=("loom-audit demo", "loom-audit demo --no-serve --json"),
    codes={exits.FAILED: "the rebuilt workspace was not equal byte for byte"},
)
def demo(
    invocation: Invocation,
    serving: Annotated[
        bool, option("--serve/--no-serve", help="Serve the dashboard on it at the end.")
    ] = True,
    port: Annotated[
        int | None,
        option(
            min=1,
            max=65535,
            metavar="N",
            help=f"The dashboard's port; else {PORT}, or a free one where that is taken.",
        ),
    ] = None,
) -> int:
    """Record a real agent session and show what can be done.

    Over a copy of a Python package found on this machine, in a new temporary folder, which
    stays until you delete it, and in a store of its own there unless one is set. Without
    serving it ends by replaying the end, rolling the workspace back to the start, and proving
    both equal byte for byte.
    """
    output = invocation.output
    from loom_audit.demo.proof import prove
    from loom_audit.demo.recording import demo_store, demonstrating, make_folder

    chosen = usable_port(port) if serving else 0
    folder = make_folder()
    try:
        with demo_store(folder, invocation.shared.store) as store:
            with ExitStack() as stack:
                with progress(output) as report:
                    demonstration = demonstrating(store, folder, report=report, asking=serving)
                    made = stack.enter_context(demonstration)
                if not output.json:
                    _introduce(output, made)
                if serving:
                    if output.json:
                        output.record(asdict(made))
                    serve_dashboard(output, store, chosen)
                    return exits.OK
            proof = prove(store.workspace(made.root), made)
        if output.json:
            output.record({**asdict(made), "proven": proof.holds, "proof": asdict(proof)})
        else:
            _conclude(output, proof)
        return exits.OK if proof.holds else exits.FAILED
    finally:
        # what somebody tried in it meanwhile is theirs: it is not deleted unasked
        output.note(f"all of it is in {folder}; `rm -r {shlex.quote(str(folder))}` deletes it")


def _introduce(output: Output, made: "Demo") -> None:
    from loom_audit.demo.recording import what_to_try
    from loom_audit.demo.story import ASKED

    recorded = f"{count_text(made.calls, 'call')} in two sessions recorded"
    output.line((f"{recorded} on a copy of {made.package}", "green"))
    waits = ", one waits for an answer" if ASKED.label in made.numbers else ""
    edited = ", ".join(made.outside)
    output.line(f"{made.failed} of them failed{waits}, and a person edited {edited}")
    output.line("")
    output.line("Try, in another terminal:")
    output.line(f"  cd {shlex.quote(made.root)}")
    if shutil.which(PROGRAM) is None:
        output.line(f'  export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"')
    for name, value in made.environment.items():
        output.line(f"  export {name}={shlex.quote(value)}")
    tries = what_to_try(made)
    width = max(len(text) for text, _ in tries) + 2
    for text, purpose in tries:
        output.line(f"  {text:{width}}", (f"# {purpose}", "dim"))
    output.line("")


def _conclude(output: Output, proof: "Proof") -> None:
    for what, paths in proof.compared.items():
        unequal = proof.differences[what]
        if unequal:
            output.line((f"{what}: {len(unequal)} of {paths} paths differ", "red"))
            output.lines([(f"  {path}",) for path in unequal[:20]])
        else:
            output.line((f"{what}: {paths} paths, equal byte for byte", "green"))
