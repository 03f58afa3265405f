"""What tests of the verbs share: one furnished folder per worker."""

from pathlib import Path

import pytest

from tests.app.desk import Desk, furnish


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("desk")
    furnish(folder)
    return folder


@pytest.fixture
def desk(furnished: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(furnished)
    return Desk(furnished)
