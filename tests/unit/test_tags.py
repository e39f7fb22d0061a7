"""Tags as they are given: pairs, in their order, or refused by name."""

import pytest

from common.errors import RefusedError
from producer.job_spec import parse_tags


def test_tags_are_pairs_in_their_order() -> None:
    assert list(parse_tags(["z.1-_Z=last", "a=", "b=x=y"]).items()) == [("z.1-_Z", "last"), ("a", ""), ("b", "x=y")]
    assert parse_tags(["k" * 64 + "=" + "v" * 256]) == {"k" * 64: "v" * 256}


@pytest.mark.parametrize(
    "given",
    [
        ["a"],
        ["=b"],
        ["a b=c"],
        ["ä=c"],
        ["k" * 65 + "=v"],
        ["k=" + "v" * 257],
        ["k=a\nb"],
        ["k=a\x1b[0m"],
        ["k=1", "k=2"],
    ],
)
def test_what_is_no_tag_is_refused(given: list[str]) -> None:
    with pytest.raises(RefusedError):
        parse_tags(given)
