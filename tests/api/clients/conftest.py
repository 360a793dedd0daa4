"""What answers the hooks of clients, over the store of a test."""

from collections.abc import Iterator

import pytest

from loom_audit import AuditStore
from loom_audit.api.agents.clients import Hooks


@pytest.fixture
def hooks(store: AuditStore) -> Iterator[Hooks]:
    hooks = Hooks(store)
    yield hooks
    hooks.close()
