"""The folder of records for tests of the results tool."""

import pytest


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "not_run.json").write_text('{"copying-5000": "too long"}')
    return tmp_path / "rows"
