"""What `open_store` is given: a file, by its path or URL, and no folder."""

from pathlib import Path

import pytest

from loom_audit import open_store
from loom_audit.errors import InvalidArguments


@pytest.mark.parametrize("written", ["{}", "sqlite:///{}"])
def test_a_folder_is_refused_with_the_name_of_a_file_in_it_and_stays_as_it_is(
    written: str, tmp_path: Path
) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "kept.txt").write_text("kept")
    with pytest.raises(InvalidArguments, match="is a folder") as refused:
        open_store(written.format(folder))
    assert f"{folder}/audit.db" in refused.value.hint
    assert [path.name for path in folder.iterdir()] == ["kept.txt"]


def test_a_path_of_pathlib_is_the_same_store_as_its_text(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    with open_store(file) as store:
        assert store.url == f"sqlite:///{file}"
    with open_store(str(file)) as store:
        assert store.url == f"sqlite:///{file}" and file.is_file()
    with pytest.raises(InvalidArguments, match="is a folder"):
        open_store(tmp_path)
