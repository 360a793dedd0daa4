"""`loom-audit completion`: what a shell runs to complete our commands."""

from typing import Annotated

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import PROGRAM, Invocation
from loom_audit.cli.shared.parameters import argument
from loom_audit.errors import InvalidArguments

SHELLS = ("bash", "zsh", "fish")


@command(
    examples=(
        'eval "$(loom-audit completion bash)"   # in ~/.bashrc',
        "loom-audit completion fish > ~/.config/fish/completions/loom-audit.fish",
    )
)
def completion(
    invocation: Invocation, shell: Annotated[str, argument("SHELL", help=f"{', '.join(SHELLS)}.")]
) -> None:
    """Print what completes commands and options in a shell."""
    if shell not in SHELLS:
        raise InvalidArguments(
            f"no completion for {shell}", hint=f"There are: {', '.join(SHELLS)}."
        )
    from click.shell_completion import get_completion_class

    from loom_audit.cli.application import app

    found = get_completion_class(shell)
    assert found is not None
    variable = f"_{PROGRAM.upper().replace('-', '_')}_COMPLETE"
    script = found(app, {}, PROGRAM, variable).source()
    output = invocation.output
    if output.json:
        output.record({"shell": shell, "script": script})
    else:
        output.text(script)
