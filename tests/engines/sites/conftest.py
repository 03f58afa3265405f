"""Sites of a test end with it: their threads would go on and slow others down."""

from collections.abc import Iterator

import pytest

from tests.engines.sites.local import OPENED


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()
