"""What makes a command of a function: its help, its shared options, how it is carried out."""

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TextIO

import click
from msgspec import Struct
from msgspec.structs import replace

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.invocation import PROGRAM, Invocation, SharedOptions
from loom_audit.cli.shared.output import Output, open_output
from loom_audit.cli.shared.parameters import parameter, parameters_of
from loom_audit.errors import (
    AuditError,
    FileNotFound,
    InvalidArguments,
    PermissionDenied,
    StorageFailed,
)

Body = Callable[..., int | None]


class CliCommand(Struct, frozen=True):
    """A command's body `(Invocation, own options…) -> exit code or None`, and its help.

    `failure` replaces every exit code of an error of ours; `passes_on` leaves options after the
    first argument to the command that is named there.
    """

    body: Body
    examples: Sequence[str]
    codes: Mapping[int, str]
    failure: int | None = None
    passes_on: bool = False

    def as_click(self, name: str) -> click.Command:
        """Make click's command; its help has the shared options, the examples, the exit codes."""
        always = exits.ALWAYS if self.failure is None else (exits.OK,)
        settings = {"allow_interspersed_args": False}
        return click.Command(
            name,
            callback=partial(_run, self),
            params=[*parameters_of(self.body), *shared_parameters()],
            help=_help(self.body, self.examples),
            epilog=exits.table(dict.fromkeys(always, "") | dict(self.codes)),
            context_settings=settings if self.passes_on else None,
        )


class Group(Struct, frozen=True):
    """Commands under one name: `db path`, `db upgrade`."""

    help: str
    commands: Mapping[str, CliCommand]

    def as_click(self, name: str) -> click.Command:
        """Make click's group of these commands."""
        inner = [one.as_click(name) for name, one in self.commands.items()]
        return click.Group(name, help=self.help, commands=inner, no_args_is_help=True)


def command(
    *,
    examples: Sequence[str],
    codes: Mapping[int, str] | None = None,
    failure: int | None = None,
    passes_on: bool = False,
) -> Callable[[Body], CliCommand]:
    """Make a command of a body; the docstring is its help. See `Command`."""

    def made(body: Body) -> CliCommand:
        return CliCommand(body, examples, codes or {}, failure, passes_on)

    return made


def shared_parameters() -> Sequence[click.Parameter]:
    """The options that every command has, which may stand before its name too."""
    return [*map(parameter, inspect.signature(SharedOptions).parameters.values())]


def _run(command: CliCommand, **values: Any) -> None:
    context = click.get_current_context()
    shared = (context.obj or SharedOptions()).with_values(values)
    context.exit(carry_out(shared, command.body, values, failure=command.failure))


def _help(body: Body, examples: Sequence[str]) -> str:
    text = inspect.getdoc(body) or ""
    if examples:
        label = "Example:" if len(examples) == 1 else "Examples:"
        text += f"\n\n\b\n{label}\n" + "\n".join(f"  {example}" for example in examples)
    return text


def carry_out(
    shared: SharedOptions, body: Body, values: Mapping[str, Any], *, failure: int | None = None
) -> int:
    """Run a command's body and give its exit code; errors are printed, never raised."""
    output = open_output(json=shared.json)
    try:
        return _carry_out(shared, output, body, values, failure)
    except BrokenPipeError:
        return leave_quietly(output.stdout, output.stderr)


def _carry_out(
    shared: SharedOptions,
    output: Output,
    body: Body,
    values: Mapping[str, Any],
    failure: int | None,
) -> int:
    try:
        shared.check()
        code = body(Invocation(shared, output), **values) or exits.OK
        output.stdout.flush()
    except (click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except AuditError as error:
        code = exits.exit_code(error.code) if failure is None else failure
        _print_error(output, error)
    except KeyboardInterrupt:
        output.note("interrupted")
        code = exits.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost edge: nobody above could tell it
        if _is_of_interrupt(error):
            output.note("interrupted")
            return exits.INTERRUPTED
        shown = _unexpected(error)
        code = exits.exit_code(shown.code) if failure is None else failure
        _print_error(output, shown)
    return code


def _print_error(output: Output, error: AuditError) -> None:
    if os.environ.get("LOOM_AUDIT_DEBUG") == "1":
        import traceback

        output.stderr.write(traceback.format_exc())
    output.error(error)


def _is_of_interrupt(error: BaseException | None) -> bool:
    """Whether an error was raised while an interrupt was under way.

    Where Ctrl-C comes as a thread is waited for, Python 3.11 may say "release unlocked lock".
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _unexpected(error: Exception) -> AuditError:
    if isinstance(error, OSError) and error.strerror:
        name = f": {os.fsdecode(error.filename)}" if error.filename else ""
        hint = "Name another, or change what is there."
        if isinstance(error, FileNotFoundError):
            return FileNotFound(f"{error.strerror}{name}", hint="See that it is spelled right.")
        if isinstance(error, PermissionError):
            return PermissionDenied(f"{error.strerror}{name}", hint=hint)
        return StorageFailed(f"{error.strerror}{name}", hint=hint)
    return AuditError(
        f"internal error: {type(error).__name__}: {error}",
        hint="Run it again with LOOM_AUDIT_DEBUG=1 and report what it prints.",
    )


def leave_quietly(*streams: TextIO) -> int:
    """Say nothing more where the reader has gone (`| head`), also not when Python flushes at its
    end; the exit code.
    """
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(silence, stream.fileno())
    os.close(silence)
    return exits.BROKEN_PIPE


def spelled_nearly(typed: str, names: Iterable[str]) -> Sequence[str]:
    """At most three names that begin nearly as what was typed, or else are spelled nearly so."""
    from difflib import get_close_matches

    names = [*names]
    begin = (name for name in names if get_close_matches(typed, [name[: len(typed)]], cutoff=0.75))
    return [*islice(begin, 3)] or get_close_matches(typed, names)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the arguments ask for JSON, told before they are parsed: for usage errors."""
    ours = list(arguments)
    return "--json" in (ours[: ours.index("--")] if "--" in ours else ours)


def usage_error(error: Exception, arguments: Sequence[str]) -> int:
    """Print what click found wrong with the arguments, and give the exit code."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else _command_in(arguments)
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    output = replace(open_output(json=wants_json(arguments)), stdout=sys.stdout)
    if message.startswith("Usage: "):  # a group of commands named alone says its whole help
        if not output.json:
            output.text(message + "\n")
        message = f"{path} needs a command"
    hint = f"See `{path} --help`."
    if path.split()[-1:] in (["undo"], ["redo"]) and "unexpected extra argument" in message:
        hint = "It takes no call: `loom-audit revert CALL` takes back the one that is named."
    output.error(InvalidArguments(message, hint=hint))
    is_run = path.split()[-1:] == ["run"]
    return exits.OUR_FAILURE if is_run else exits.USAGE


def _command_in(arguments: Sequence[str]) -> str:
    """The program with the command that the arguments name, where click did not get so far."""
    words = iter(arguments)
    for word in words:
        if word in ("--store", "--workspace"):
            next(words, None)
        elif not word.startswith("-"):
            return f"{PROGRAM} {word}"
    return PROGRAM
