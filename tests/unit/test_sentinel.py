"""URLs of a Redis behind Sentinel: their parts, as redis-py and as kombu take them."""

from pathlib import Path

import pytest

from common.broker import celery_url, make_client, transport_options
from common.errors import RefusedError
from common.log import redact
from common.secret_file import with_password
from common.sentinel import parse
from common.settings import load

URL = "sentinel://cook:pa%2Fss@one:26380,two/bakery/3"


def test_its_parts() -> None:
    assert parse(URL) == ((("one", 26380), ("two", 26379)), "bakery", 3, "cook", "pa/ss")
    assert parse("sentinel://one/bakery") == ((("one", 26379),), "bakery", 0, None, None)


def test_kombu_is_told_each_sentinel_and_the_name() -> None:
    assert celery_url(URL) == "sentinel://cook:pa%2Fss@one:26380/3;sentinel://cook:pa%2Fss@two:26379/3"
    assert transport_options(load(redis_url=URL))["master_name"] == "bakery"


@pytest.mark.parametrize("url", ["sentinel://one", "sentinel://one/", "sentinel:///bakery", "sentinel://one:x/bakery"])
def test_what_is_no_such_url_is_refused(url: str) -> None:
    with pytest.raises(RefusedError, match="no address"):
        make_client(url)


def test_its_password_is_hidden_and_may_stand_in_a_file(tmp_path: Path) -> None:
    assert "ss" not in redact(URL).replace("sentinel", "")
    path = tmp_path / "secret"
    path.write_text("from-a-file")
    path.chmod(0o600)
    assert parse(with_password("sentinel://one,two/bakery", path)).password == "from-a-file"
