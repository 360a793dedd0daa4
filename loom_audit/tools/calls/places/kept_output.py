"""What an answer leaves out, kept where the model can page through it and search it."""

import re
from dataclasses import replace

from loom_audit.errors import AuditError
from loom_audit.history.record.call import OpenCall
from loom_audit.model.text.cutting import cut
from loom_audit.tools.calls.places import scratch
from loom_audit.tools.calls.places.area import SCRATCH
from loom_audit.tools.calls.result import MAX_OUTPUT, ToolResult

FOLDER = "output"
"""The folder in the session's scratch directory, which ends with the session."""
_CUT = re.compile(r"^\[… \d+ of \d+ bytes left out", re.MULTILINE)
"""What stands where something is missing in the output that is kept."""


def with_rest_kept(result: ToolResult, call: OpenCall) -> ToolResult:
    """Return the result, and keep the whole of an output that is cut in the scratch directory.

    The cut names the file, and says whether all of the output is in it, or why none is: where the
    scratch directory cannot be written.
    """
    if result.output == result.full_output:
        return result
    way_on = ""
    if call.writer.scratch is not None:
        path = f"{FOLDER}/{re.sub(r'[^A-Za-z0-9_-]', '_', call.call_id)[:80]}.txt"
        try:
            # a lone surrogate stays visible, since no file can hold it
            content = result.full_output.encode("utf-8", "backslashreplace")
            scratch.write(call.writer.scratch, path, content)
            what = "what was kept" if _CUT.search(result.full_output) else "all of it"
            way_on = f"; {what} is {SCRATCH}{path}, for read_file and search_files"
        except AuditError as error:
            way_on = f"; it could not be kept: {error.message[:200]}"
    return replace(result, output=cut(result.full_output, MAX_OUTPUT, way_on))
