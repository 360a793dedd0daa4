"""The tools that change files: of what is not to be changed every byte stays."""

from typing import Annotated

from msgspec import Meta, field

from loom_audit.model.text.cutting import cut
from loom_audit.model.text.display import count_text
from loom_audit.tools.approvals.preview import preview_delete, preview_move, preview_write
from loom_audit.tools.bundled.edits import TextEdit, apply_edits
from loom_audit.tools.bundled.files.reading import Encoding, NonEmpty, Path
from loom_audit.tools.bundled.text import diff_text, encode, from_base64
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.fields import Fields, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Preview, Tool, one_thread

_MAX_SHOWN = 8 * 1024
"""Bytes of the difference that `edit_file` shows; all of it is in the log as a change."""


class WriteInput(Fields):
    path: Path
    content: Annotated[str, Meta(description="The whole new content")]
    encoding: Annotated[Encoding, Meta(description="How content is written here")] = "utf-8"
    create_dirs: Annotated[bool, Meta(description="Create missing parent directories")] = field(
        name="createDirs", default=True
    )

    def raw(self) -> bytes:
        """Return the bytes to write. InvalidArguments for a content that is not in its encoding."""
        if self.encoding == "base64":
            return from_base64(self.content)
        return encode(self.content, "content")


class WriteOutput(Output):
    path: str
    size: int
    created: bool


class WriteFile(Tool):
    """Replaces the whole content of a file, or creates the file."""

    name = "write_file"
    description = "Create a file, or replace all of its content. What was there can be restored."
    input = WriteInput
    output = WriteOutput
    effect = "write"
    timeout_seconds = 10

    def requires_approval(self, args: WriteInput, ctx: ToolContext) -> bool | str:
        return f"overwrites {args.path}" if ctx.exists(args.path) else False

    def preview(self, args: WriteInput, ctx: ToolContext) -> Preview:
        return preview_write(ctx, args.path, args.raw(), parents=args.create_dirs)

    @one_thread
    async def execute(self, args: WriteInput, ctx: ToolContext) -> ToolResult:
        content = args.raw()
        change = await ctx.write(args.path, content, parents=args.create_dirs, final=True)
        created = change.before is None
        verb = "Created" if created else "Wrote"
        data = {"path": change.path, "size": len(content), "created": created}
        return ToolResult(True, f"{verb} {change.path}: {count_text(len(content), 'byte')}", data)


class Edit(Fields):
    old_str: Annotated[str, Meta(description="What to replace; empty appends to the file")]
    new_str: Annotated[str, Meta(description="What to put there")]
    replace_all: Annotated[bool, Meta(description="Replace every occurrence")] = False


class EditInput(Fields):
    path: Path
    old_str: Annotated[
        str | None,
        Meta(description="Text that stands in the file exactly once; empty appends"),
    ] = None
    new_str: Annotated[str | None, Meta(description="What to put in its place")] = None
    replace_all: Annotated[
        bool,
        Meta(description="Replace every occurrence of old_str, of which there may be several"),
    ] = False
    edits: Annotated[
        Annotated[list[Edit], Meta(min_length=1, max_length=1000)] | None,
        Meta(
            description="Several edits instead of old_str and new_str; each sees the result of "
            "the one before; all or none are made",
        ),
    ] = None

    def __post_init__(self) -> None:
        single = self.old_str is not None or self.new_str is not None
        if single and self.edits is not None:
            raise ValueError("give old_str and new_str, or edits, not both")
        if self.replace_all and self.edits is not None:
            raise ValueError("with edits, replace_all stands in each of them")
        if self.edits is None and (self.old_str is None or self.new_str is None):
            raise ValueError("old_str and new_str are both needed, or edits")

    def steps(self) -> list[TextEdit]:
        """Return the edits in order, as bytes. InvalidArguments for a lone surrogate."""
        alone = Edit(
            old_str=self.old_str or "", new_str=self.new_str or "", replace_all=self.replace_all
        )
        listed = self.edits or [alone]
        return [
            TextEdit(encode(e.old_str, "old_str"), encode(e.new_str, "new_str"), e.replace_all)
            for e in listed
        ]


class EditOutput(Output):
    path: str
    edits_applied: int
    original_bytes: int
    new_bytes: int


class EditFile(Tool):
    """Replaces texts in a file, all of them or none."""

    name = "edit_file"
    description = (
        "Replace text in a file. old_str must stand in it exactly once, white space included, or "
        "at least once with replace_all, and without the line numbers that read_file shows. "
        "Line ends need no care: LF matches CRLF, and lines keep the ends they have. "
        "An empty old_str appends, and creates the file if need be. "
        "The result shows what all edits together changed, as a unified diff."
    )
    input = EditInput
    output = EditOutput
    effect = "write"
    timeout_seconds = 10

    def preview(self, args: EditInput, ctx: ToolContext) -> Preview:
        steps = args.steps()
        return preview_write(ctx, args.path, lambda old: apply_edits(args.path, old, steps))

    @one_thread
    async def execute(self, args: EditInput, ctx: ToolContext) -> ToolResult:
        steps = args.steps()
        seen: list[tuple[bytes, bytes]] = []

        def transform(content: bytes | None) -> bytes:
            new = apply_edits(args.path, content, steps)
            seen[:] = [(content or b"", new)]
            return new

        change = await ctx.edit(args.path, transform, final=True)
        [(old, new)] = seen
        data = {
            "path": change.path,
            "edits_applied": len(steps),
            "original_bytes": len(old),
            "new_bytes": len(new),
        }
        if old == new:
            return ToolResult(True, f"{change.path} is as it was: the edit changes nothing", data)
        done = f"Edited {change.path} ({count_text(len(steps), 'edit')}):\n"
        return ToolResult(
            True,
            done + cut(diff_text(old, new), _MAX_SHOWN, "; read_file shows the file as it is now"),
            data,
        )


class DeleteInput(Fields):
    path: Path
    recursive: Annotated[bool, Meta(description="Delete a directory with all it holds")] = False


class DeleteOutput(Output):
    deleted: list[str]


class DeleteFile(Tool):
    """Deletes a file, a symlink or a directory."""

    name = "delete_file"
    description = "Delete a file, a symlink (not what it points to), or a directory."
    input = DeleteInput
    output = DeleteOutput
    effect = "write"
    timeout_seconds = 10

    def requires_approval(self, args: DeleteInput, ctx: ToolContext) -> bool | str:
        return f"deletes {args.path}"

    def preview(self, args: DeleteInput, ctx: ToolContext) -> Preview:
        return preview_delete(ctx, args.path, recursive=args.recursive)

    @one_thread
    async def execute(self, args: DeleteInput, ctx: ToolContext) -> ToolResult:
        deleted = await ctx.delete(args.path, recursive=args.recursive, final=True)
        return ToolResult(True, "\n".join(["Deleted:", *deleted]), {"deleted": [*deleted]})


class MoveInput(Fields):
    source: Annotated[NonEmpty, Meta(description="What to move")] = field(name="from")
    target: Annotated[NonEmpty, Meta(description="Its new path")] = field(name="to")
    overwrite: Annotated[bool, Meta(description="Replace a file that is there")] = False


class MoveOutput(Output):
    source: str = field(name="from")
    target: str = field(name="to")


class MoveFile(Tool):
    """Renames a file, a symlink or a directory."""

    name = "move_file"
    description = "Move or rename a file, a symlink or a directory; parents are created."
    input = MoveInput
    output = MoveOutput
    effect = "write"
    timeout_seconds = 10

    def requires_approval(self, args: MoveInput, ctx: ToolContext) -> bool | str:
        return f"overwrites {args.target}" if args.overwrite and ctx.exists(args.target) else False

    def preview(self, args: MoveInput, ctx: ToolContext) -> Preview:
        return preview_move(ctx, args.source, args.target, overwrite=args.overwrite)

    @one_thread
    async def execute(self, args: MoveInput, ctx: ToolContext) -> ToolResult:
        await ctx.move(args.source, args.target, overwrite=args.overwrite, final=True)
        data = {"from": args.source, "to": args.target}
        return ToolResult(True, f"Moved {args.source} to {args.target}", data)
