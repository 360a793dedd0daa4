"""What every command shares: its options, its help, how it ends, and how arguments are read."""

import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_audit.cli import exits
from loom_audit.cli.output import Output, open_output
from loom_audit.errors import (
    AuditError,
    FileNotFound,
    InvalidArguments,
    InvalidPath,
    NotFound,
    NoWorkspace,
    PermissionDenied,
    StorageFailed,
)

if TYPE_CHECKING:
    from loom_audit.api import AuditedWorkspace, AuditStore

PROGRAM = "loom-audit"

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", help="The store: a database URL or a file. [LOOM_AUDIT_STORE]"
    ),
]
WorkspaceOption = Annotated[
    str | None,
    typer.Option(
        "--workspace",
        metavar="PATH",
        help="The workspace, by its folder or its id; by default the one you are in.",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON object per line instead of text.")
]

ChooseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--choose",
        metavar="PATH=current|old|merge",
        help="What to do with a path in conflict; repeatable.",
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the plan, change nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask on a terminal.")]

_SHARED: Mapping[str, Any] = {
    "store": StoreOption,
    "workspace": WorkspaceOption,
    "json": JsonOption,
}


@dataclass(frozen=True, slots=True)
class Shared:
    """The shared options as given so far: before the command, then after it."""

    store: str | None = None
    workspace: str | None = None
    json: bool = False

    def with_values(self, values: dict[str, Any]) -> "Shared":
        """These options with those given after the command, which win; takes them out."""
        store, workspace = values.pop("store"), values.pop("workspace")
        return Shared(
            store if store is not None else self.store,
            workspace if workspace is not None else self.workspace,
            bool(values.pop("json")) or self.json,
        )

    def check(self) -> None:
        """InvalidArguments for an empty text, which a script's unset variable leaves."""
        for option, given in (("--store", self.store), ("--workspace", self.workspace)):
            if given == "":
                raise InvalidArguments(f"{option} is empty", hint="Name one, or leave it out.")


@dataclass(frozen=True, slots=True)
class Invocation:
    """One command being carried out: where it looks, and where it prints."""

    shared: Shared
    output: Output

    @contextmanager
    def store(self, *, create: bool = False) -> Iterator["AuditStore"]:
        """The store asked for, open to the end of the block. NoWorkspace when there is none."""
        from loom_audit.api import open_store
        from loom_audit.config import read_settings

        file = store_file(read_settings(self.shared.store).url)
        if file is not None and not create and not file.exists():
            raise NoWorkspace(
                f"there is no store at {file}",
                hint="Run `loom-audit init` in the directory you want to put under audit.",
            )
        if file is not None and not create and not file.stat().st_size:
            # to be opened it would be made a new store, which hides that one was cut off
            raise NoWorkspace(
                f"the store {file} is empty",
                hint="Restore it from a backup, or begin a new one with `loom-audit init`.",
            )
        with open_store(self.shared.store) as store:
            if store.notice:
                self.output.note(("note: ", "yellow"), store.notice)
            yield store

    @contextmanager
    def workspace(self) -> Iterator["AuditedWorkspace"]:
        """The workspace asked for, or the one that holds the current directory. NoWorkspace."""
        with self.store() as store:
            try:
                found = store.workspace(self.shared.workspace or Path.cwd())
            except NoWorkspace as error:
                raise NoWorkspace(
                    error.message,
                    hint="`loom-audit workspaces` lists those there are, to be named with "
                    "--workspace; `loom-audit init` makes one of a folder.",
                    details=error.details,
                ) from None
            yield found


Body = Callable[..., int | None]


def command(
    app: typer.Typer,
    name: str,
    *,
    section: str = "",
    examples: Sequence[str] = (),
    codes: Mapping[int, str] | None = None,
    failure: int | None = None,
    passes_on: bool = False,
) -> Callable[[Body], Body]:
    """Register a body `(Invocation, own options…) -> exit code or None` as a command.

    Adds the shared options, the examples and the exit codes to its help. `failure` replaces
    every exit code of an error of ours; `passes_on` leaves options after the first argument
    to the command that is named there.
    """
    always = exits.ALWAYS if failure is None else (exits.OK,)
    shown = dict.fromkeys(always, "") | dict(codes or {})

    def register(body: Body) -> Body:
        own = list(inspect.signature(body, eval_str=True).parameters.values())[1:]

        def entry(**values: Any) -> None:
            before = values.pop("ctx").obj or Shared()
            shared = before.with_values(values)
            raise typer.Exit(carry_out(shared, body, values, failure=failure))

        parameters = [
            inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
            *(
                inspect.Parameter(
                    option,
                    inspect.Parameter.KEYWORD_ONLY,
                    annotation=annotation,
                    default=False if option == "json" else None,
                )
                for option, annotation in _SHARED.items()
            ),
        ]
        entry.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        entry.__annotations__ = {p.name: p.annotation for p in parameters}
        settings = (
            {"ignore_unknown_options": True, "allow_interspersed_args": False}
            if passes_on
            else None
        )
        app.command(
            name,
            help=_help(body, examples),
            epilog=exits.table(shown),
            rich_help_panel=section or None,
            context_settings=settings,
        )(entry)
        return body

    return register


def _help(body: Body, examples: Sequence[str]) -> str:
    text = inspect.getdoc(body) or ""
    if examples:
        label = "Example:" if len(examples) == 1 else "Examples:"
        text += f"\n\n\b\n{label}\n" + "\n".join(f"  {example}" for example in examples)
    return text


def carry_out(
    shared: Shared, body: Body, values: Mapping[str, Any], *, failure: int | None = None
) -> int:
    """Run a command's body and give its exit code; errors are printed, never raised."""
    output = open_output(json=shared.json)
    try:
        shared.check()
        code = body(Invocation(shared, output), **values) or exits.OK
        output.stdout.flush()
    except (typer.Exit, typer.Abort):
        raise
    except AuditError as error:
        code = exits.exit_code(error.code) if failure is None else failure
        _report(output, error)
    except BrokenPipeError:
        code = _leave_quietly(output)
    except KeyboardInterrupt:
        output.note("interrupted")
        code = exits.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost edge: nobody above could tell it
        shown = _unexpected(error)
        code = exits.exit_code(shown.code) if failure is None else failure
        _report(output, shown)
    return code


def _report(output: Output, error: AuditError) -> None:
    if os.environ.get("LOOM_AUDIT_DEBUG") == "1":
        output.stderr.write(traceback.format_exc())
    output.error(error)


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


def _leave_quietly(output: Output) -> int:
    """The reader has gone (`| head`): say nothing, also not when Python flushes at its end."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, output.stdout.fileno())
    os.close(silence)
    return exits.BROKEN_PIPE


def store_file(url: str) -> Path | None:
    """The file of a SQLite store; None for any other database."""
    prefix = "sqlite:///"
    return Path(url.removeprefix(prefix)).absolute() if url.startswith(prefix) else None


def existing_store(url: str, *, hint: str) -> Path:
    """The file of a SQLite store. InvalidArguments for another database; NotFound, which hints."""
    file = store_file(url)
    if file is None:
        raise InvalidArguments(
            f"{url} is not a SQLite store", hint="Name a file: --store sqlite:///PATH."
        )
    if not file.exists():
        raise NotFound(f"there is no store at {file}", hint=hint)
    return file


def workspace_path(root: str, text: str) -> str:
    """A path as typed, relative to the current directory when that is inside the workspace.

    Outside of it, relative to the workspace. "" is the root. InvalidPath when it leads out.
    """
    typed = os.fsencode(text)
    real_root = os.path.realpath(os.fsencode(root))
    here = os.path.realpath(os.fsencode(Path.cwd()))
    inside = here == real_root or here.startswith(real_root + b"/")
    full = os.path.normpath(os.path.join(here if inside else real_root, typed))
    for base in (real_root, os.path.normpath(os.fsencode(root))):
        if full == base:
            return ""
        if full.startswith(base.rstrip(b"/") + b"/"):
            return full[len(base.rstrip(b"/")) + 1 :].decode("utf-8", "surrogateescape")
    raise InvalidPath(
        f"{text} is outside the workspace {root}",
        hint="Name a path inside it, or another workspace with --workspace.",
    )


def read_choices(root: str, texts: Sequence[str] | None) -> dict[str, Any]:
    """`PATH=current|old|merge`, several, as a mapping from workspace path to choice."""
    choices = {}
    for text in texts or ():
        path, sign, choice = text.rpartition("=")
        if not sign or choice not in ("current", "old", "merge"):
            raise InvalidArguments(
                f"--choose {text}: expected PATH=current, PATH=old or PATH=merge",
                hint="current keeps what is there, old takes what was, merge writes both.",
            )
        named = workspace_path(root, path) if path else ""
        if not named:
            raise InvalidArguments(
                f"--choose {text}: no path is named", hint="Name a path of the plan's conflicts."
            )
        choices[named] = choice
    return choices


_AGO = re.compile(r"(\d+)\s*(s|m|h|d|w)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def read_time(text: str, now: datetime | None = None) -> datetime:
    """An RFC 3339 time, a local date or time without a zone, or an age such as `2h`; in UTC."""
    if match := _AGO.fullmatch(text.strip()):
        age = timedelta(**{_UNITS[match[2]]: int(match[1])})
        return (now or datetime.now(UTC)) - age
    try:
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except ValueError:
        raise InvalidArguments(
            f"not a time: {text}",
            hint="Write 2026-01-31, 2026-01-31T14:05:00Z, or an age: 30m, 2h, 3d.",
        ) from None


_POINT = re.compile(r"\d+|head(~\d*)?|@.+|session:.+|\d{4}-\d{2}-\d{2}([T ].*)?")


def is_point(text: str) -> bool:
    """Whether a text has the form of a point: 42, head~3, a time, @name, session:ID."""
    return _POINT.fullmatch(text) is not None


def point_text(text: str) -> str:
    """A point as the log reads it: a date or a time without a zone is taken as local time."""
    if re.match(r"\d{4}-\d{2}-\d{2}", text):
        return read_time(text).isoformat()
    return text


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the arguments ask for JSON, told before they are parsed: for usage errors."""
    ours = list(arguments)
    return "--json" in (ours[: ours.index("--")] if "--" in ours else ours)


def usage_error(error: Exception, arguments: Sequence[str]) -> int:
    """Print what Typer found wrong with the arguments, and give the exit code."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else _command_in(arguments)
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    output = replace(open_output(json=wants_json(arguments)), stdout=sys.stdout)
    if message.startswith("Usage: "):  # a group of commands named alone says its whole help
        if not output.json:
            output.text(message + "\n")
        message = f"{path} needs a command"
    output.error(InvalidArguments(message, hint=f"See `{path} --help`."))
    is_run = path.split()[-1:] == ["run"]
    return exits.OUR_FAILURE if is_run else exits.USAGE


def _command_in(arguments: Sequence[str]) -> str:
    """The program with the command that the arguments name, where Typer did not get so far."""
    words = iter(arguments)
    for word in words:
        if word in ("--store", "--workspace"):
            next(words, None)
        elif not word.startswith("-"):
            return f"{PROGRAM} {word}"
    return PROGRAM


def folder(path: str) -> Path:
    """A folder as typed, absolute, with ~ expanded. InvalidArguments for an empty text."""
    if not path:
        raise InvalidArguments("no folder is named", hint="Write . for the one you are in.")
    return Path(path).expanduser().absolute()
