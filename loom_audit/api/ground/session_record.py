"""The start and the end of a session, on record."""

from contextlib import ExitStack, suppress
from types import TracebackType

from msgspec.structs import replace

from loom_audit.api.ground.rules import RuleFiles
from loom_audit.config import VERSION
from loom_audit.errors import NoWorkspace
from loom_audit.history.ground.attachment import Attachment, session_lock
from loom_audit.history.ground.free_space import check_free_space
from loom_audit.history.ground.writer import Writer, new_id
from loom_audit.history.record.call import close_unfinished
from loom_audit.history.record.recovery import recover_all
from loom_audit.history.record.watching import end_watch
from loom_audit.model.events import RulesChanged, SessionEnded, SessionStarted
from loom_audit.wiring.adapters import Adapters


class SessionRecord:
    """A context manager, entered once, that gives the writer of a new session, or of the one of
    this `id`, which goes on.

    While it is open its process holds an OS lock that says so, and there is a scratch directory.
    CONFLICT when an interrupted undo or rollback waits for a decision; AUDIT_UNAVAILABLE when
    the store's disk is nearly full.
    """

    def __init__(
        self,
        adapters: Adapters,
        attachment: Attachment,
        agent: str,
        actor: str,
        title: str = "",
        *,
        id: str = "",
        parent: str | None = None,
    ) -> None:
        self.agent = agent
        self.title = title
        self._parent = parent
        self.writer = Writer(attachment, session=id or new_id(), actor=actor)
        self._adapters = adapters
        self._attachment = attachment
        self._closing = ExitStack()
        self._is_on_record = False
        self._rule_files = RuleFiles(adapters.settings.configuration)

    def __enter__(self) -> Writer:
        check_free_space(self._attachment.stored, "no session begins")
        # What a crash left in a workspace that is gone waits until it is back.
        with suppress(NoWorkspace):
            recover_all(self._attachment)
        try:
            with self._attachment.stored.lock.uninterrupted():
                self._begin()
        except BaseException as error:
            if self._is_on_record:  # and a signal that came meanwhile was answered then
                self.__exit__(type(error), error, None)
            self._closing.close()
            raise
        return self.writer

    def _begin(self) -> None:
        self._closing.callback(
            self._attachment.stored.lock.acquire(session_lock(self.writer.session))
        )
        scratch = self._closing.enter_context(self._adapters.scratch())
        self.writer = replace(self.writer, scratch=scratch)
        self._rule_files.read_again()
        rules = self._rule_files.rules
        started = SessionStarted(self.agent, self.title, self._parent, version=VERSION, rules=rules)
        self.writer.record(started)
        self._is_on_record = True

    def note_rules(self) -> None:
        """Put on record that `approvals.toml` or `tools.toml` is another one, if it is."""
        if self._rule_files.read_again():
            self.writer.record(RulesChanged(self._rule_files.rules))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        with self._attachment.stored.lock.uninterrupted(), self._closing:
            close_unfinished(self._attachment)
            end_watch(self._attachment)
            self.note_rules()
            self.writer.record(SessionEnded("failed" if error else "completed"))
            self._adapters.keep_head(self._attachment.stored.log.tree_head())
