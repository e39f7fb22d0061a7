"""Pictures in the documents are small, and each is shown somewhere."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*"))
MOST_BYTES = 200_000


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_small_and_shown(picture: Path) -> None:
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(f"pictures/{picture.name})" in document.read_text(encoding="utf-8") for document in documents)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < MOST_BYTES
