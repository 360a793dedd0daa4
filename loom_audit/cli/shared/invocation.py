"""One command being carried out: its shared options, and the store it looks at."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct

from loom_audit.cli.shared.output import Output
from loom_audit.cli.shared.parameters import option
from loom_audit.errors import AuditError, InvalidArguments, NotFound, NoWorkspace

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace, AuditStore
    from loom_audit.config import Settings

PROGRAM = "loom-audit"


class SharedOptions(Struct, frozen=True):
    """The shared options as given so far: before the command, then after it."""

    store: Annotated[
        str | None,
        option(metavar="URL", help="The store: a database URL or a file. [LOOM_AUDIT_STORE]"),
    ] = None
    workspace: Annotated[
        str | None,
        option(
            metavar="PATH",
            help="The workspace, by its folder or its id; by default the one you are in.",
        ),
    ] = None
    json: Annotated[bool, option(help="One JSON object per line instead of text.")] = False

    def with_values(self, values: dict[str, Any]) -> "SharedOptions":
        """These options with those given after the command, which win; takes them out."""
        store, workspace = values.pop("store"), values.pop("workspace")
        return SharedOptions(
            store if store is not None else self.store,
            workspace if workspace is not None else self.workspace,
            bool(values.pop("json")) or self.json,
        )

    def check(self) -> None:
        """Refuse an empty text, which a script's unset variable leaves. InvalidArguments."""
        for flag, given in (("--store", self.store), ("--workspace", self.workspace)):
            if given == "":
                raise InvalidArguments(f"{flag} is empty", hint="Name one, or leave it out.")


class Invocation(Struct, frozen=True):
    """A command that is being carried out looks into a store and prints to an output."""

    shared: SharedOptions
    output: Output

    @contextmanager
    def store(self, *, create: bool = False) -> Iterator["AuditStore"]:
        """Opens the store that was asked for, to the end of the block. NoWorkspace without one."""
        from loom_audit.api.store import lost_store_hint, open_store, person

        file = self.settings.file
        if file is not None and not create and not file.exists():
            raise NoWorkspace(
                f"there is no store at {file}",
                hint=lost_store_hint(self.settings)
                or "Run `loom-audit init` in the directory you want to put under audit.",
            )
        if file is not None and not create and not file.stat().st_size:
            # to be opened it would be made a new store, which hides that one was cut off
            raise NoWorkspace(
                f"the store {file} is empty",
                hint=lost_store_hint(self.settings)
                or "Restore it from a backup, or begin a new one with `loom-audit init`.",
            )
        with open_store(self.shared.store, actor=person()) as store:
            if store.notice:
                self.output.note(("note: ", "yellow"), store.notice)
            yield store

    @contextmanager
    def workspace(self) -> Iterator["AuditedWorkspace"]:
        """The workspace asked for, or the one that holds the current directory. NoWorkspace.

        That the end of its log is gone is said before anything else.
        """
        with self.store() as store:
            try:
                found = store.workspace(self.shared.workspace or Path.cwd())
            except NoWorkspace as error:
                if "moved" in error.details or "forgotten" in error.details:
                    raise
                raise NoWorkspace(
                    error.message,
                    hint="`loom-audit workspaces` lists those there are, to be named with "
                    "--workspace; `loom-audit init` makes one of a folder.",
                    details=error.details,
                ) from None
            if stopped := found.why_cut_off():
                self.note_stopped(stopped)
            yield found

    def note_stopped(self, error: AuditError) -> None:
        """Say that nothing is recorded, and why."""
        self.output.warning(error, f"NOTHING IS RECORDED: {error.message}")

    @property
    def settings(self) -> "Settings":
        """Where the store asked for, and what belongs to it, lies or would lie."""
        from loom_audit.config import read_settings

        return read_settings(self.shared.store)

    def store_file(self, *, hint: str) -> Path:
        """The file of the store, which is not opened.

        InvalidArguments where it is another database; NotFound, with the hint, where it is not.
        """
        settings = self.settings
        if settings.file is None:
            raise InvalidArguments(
                f"{settings.url} is not a SQLite store", hint="Name a file: --store sqlite:///PATH."
            )
        if not settings.file.exists():
            raise NotFound(f"there is no store at {settings.file}", hint=hint)
        return settings.file
