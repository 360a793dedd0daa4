"""The command line: `loom-audit`. Each command translates, nothing else."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `loom-audit` with the arguments, by default the process's own, and exit."""
    import typer
    from typer.exceptions import TyperException

    from loom_audit.cli.application import app
    from loom_audit.cli.options import PROGRAM, usage_error

    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(given, prog_name=PROGRAM, standalone_mode=False)
    except TyperException as error:
        code = usage_error(error, given)
    except typer.Abort:
        code = 130
    except BrokenPipeError:
        code = 141
    sys.exit(code or 0)
