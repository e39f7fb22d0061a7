"""What acceptance tests share: one node with the real engine."""

from collections.abc import Iterator

import pytest

from tests.acceptance.real_fleet import RealFleet


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealFleet]:
    """Started by whoever first asks it to be ready."""
    fleet = RealFleet(tmp_path_factory.mktemp("fleet"))
    yield fleet
    fleet.close()
