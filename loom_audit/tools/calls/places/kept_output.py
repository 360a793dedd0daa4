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
"""Of the session's scratch directory, which ends with the session."""


def with_rest_kept(result: ToolResult, call: OpenCall) -> ToolResult:
    """Return the result, and keep the whole of an output that is cut in the scratch directory.

    The cut names the file. Where the scratch directory cannot be written, the cut says so.
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
            way_on = f"; all of it is {SCRATCH}{path}, for read_file and search_files"
        except AuditError as error:
            way_on = f"; it could not be kept: {error.message[:200]}"
    return replace(result, output=cut(result.full_output, MAX_OUTPUT, way_on))
