"""The fixtures of the history's tests, on the disk: what is proven here depends on its inodes."""

from tests.history.conftest import call as call
from tests.history.conftest import home as home
from tests.history.conftest import root as root
from tests.history.conftest import session as session
from tests.history.conftest import store as store
from tests.history.conftest import workspace as workspace
from tests.on_disk import tmp_path_factory as tmp_path_factory
