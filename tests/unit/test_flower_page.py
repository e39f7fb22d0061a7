"""What Flower is refused: an address that others reach without a login, and a login that is none."""

import pytest

from common.errors import RefusedError
from common.settings import Settings
from worker.flower_page import run_flower


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "node7"])
def test_an_open_address_needs_a_login(host: str) -> None:
    with pytest.raises(RefusedError, match="open to everybody"):
        run_flower(Settings(), host=host)


@pytest.mark.parametrize("login", ["", "user", "user:", ":password"])
def test_a_login_is_user_and_password(login: str) -> None:
    with pytest.raises(RefusedError, match="USER:PASSWORD"):
        run_flower(Settings(), basic_auth=login)
