"""Progress bars: on standard error, for people at a terminal only."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from loom_audit.cli.output import Output
from loom_audit.model.display import size_text, visible

if TYPE_CHECKING:
    from loom_audit.ports import Progress, Report


@contextmanager
def progress(output: Output) -> Iterator["Report | None"]:
    """A function to report progress to, shown as a bar per stage; None where nobody looks."""
    if output.json or not output.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(file=output.stderr, highlight=False, markup=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def report(now: "Progress") -> None:
            stage = visible(now.stage)
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=now.total, count="")
            count = _amount(now.done, now.unit)
            if now.total is not None:
                count += f" of {_amount(now.total, now.unit)}"
            bars.update(tasks[stage], completed=now.done, total=now.total, count=count)

        yield report


def _amount(n: int, unit: str) -> str:
    return size_text(n) if unit == "bytes" else f"{n:,} {unit}"
