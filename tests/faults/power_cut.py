"""A disk when the power goes away: what was synced is there, and of the rest anything between nothing and all.

Files are kept in pages. Of each page any version since the last sync may have reached the disk; a file's length is the
old or the new one, whatever of its bytes are there; names (new, removed, renamed) reach it in their order within a
folder, and are sure only once the folder is synced. That is less than any of today's file systems keeps.
"""

import random
from collections.abc import Iterable
from pathlib import Path

from tests.faults.system_calls import AT_END, Step

PAGE_BYTES = 4096


class File:
    """Bytes as the living process sees them, and what of them is sure."""

    def __init__(self, content: bytes = b"") -> None:
        self.live = bytearray(content)
        self.synced = bytes(content)
        self._unsynced: list[tuple[int, bytes | None]] = []
        """(offset, data) of writes and (length, None) of truncations, since the last sync."""

    def write(self, data: bytes, offset: int) -> None:
        """Put `data` there."""
        _write(self.live, data, offset)
        self._unsynced.append((offset, data))

    def truncate(self, length: int) -> None:
        """Be so long."""
        _truncate(self.live, length)
        self._unsynced.append((length, None))

    def sync(self) -> None:
        """Now all of it is sure."""
        self.synced = bytes(self.live)
        self._unsynced.clear()

    def after_cut(self, chance: random.Random | None) -> bytes:
        """What the disk has of it: no more than is sure without `chance`."""
        if chance is None:
            return self.synced
        content = bytearray(self.synced)
        kept_pages: dict[int, int] = {}
        seen_pages: dict[int, int] = {}
        kept_lengths = chance.randint(0, len(self._unsynced))
        for number, (offset, data) in enumerate(self._unsynced):
            if data is None:
                if number < kept_lengths:
                    _truncate(content, offset)
                continue
            for at in range(offset - offset % PAGE_BYTES, offset + len(data), PAGE_BYTES):
                kept = kept_pages.setdefault(at, chance.choice((0, 1, 2, len(self._unsynced))))
                seen_pages[at] = seen_pages.get(at, 0) + 1
                if seen_pages[at] <= kept:
                    low, high = max(at, offset), min(at + PAGE_BYTES, offset + len(data))
                    _write(content, data[low - offset : high - offset], low)
        if chance.random() < 0.3 and len(content) < len(self.live):
            _truncate(content, len(self.live))
        return bytes(content)


class Folder:
    """Names, and which of them are sure."""

    def __init__(self) -> None:
        self.live: dict[str, File | Folder] = {}
        self._synced: dict[str, File | Folder] = {}
        self._unsynced: list[dict[str, File | Folder | None]] = []

    def change(self, names: dict[str, "File | Folder | None"]) -> None:
        """Give names, or take them away, all at once."""
        self._unsynced.append(names)
        _rename(self.live, names)

    def sync(self) -> None:
        """Now all names are sure."""
        self._synced = dict(self.live)
        self._unsynced.clear()

    def after_cut(self, chance: random.Random | None) -> dict[str, "File | Folder"]:
        """The names that the disk has."""
        names = dict(self._synced)
        for change in self._unsynced[: chance.randint(0, len(self._unsynced)) if chance else 0]:
            _rename(names, change)
        return names


class Disk:
    """The tree below `root`; what is there at the beginning is sure."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tree = _read(root)

    def follow(self, steps: Iterable[Step]) -> None:
        """Do what the process did."""
        for step in steps:
            if step.kind != "mark":
                self._do(step)

    def live(self, path: Path) -> bytes:
        """The bytes of a file as its process sees them; none if it is not there."""
        node: File | Folder | None = self._tree
        for name in path.relative_to(self._root).parts:
            node = node.live.get(name) if isinstance(node, Folder) else None
        return bytes(node.live) if isinstance(node, File) else b""

    def cut(self, *, chance: random.Random | None) -> None:
        """Write the tree below `root` as it is after the power went away at this moment; `root` must be empty."""
        _write_tree(self._tree, self._root, chance, {})

    def _do(self, step: Step) -> None:
        folder, name = self._folder(step.path), step.path.name
        node = self._tree if step.path == self._root else folder.live.get(name)
        if step.kind == "create" and node is None:
            folder.change({name: File()})
        elif step.kind == "mkdir":
            folder.change({name: Folder()})
        elif step.kind == "remove":
            folder.change({name: None})
        elif step.kind in ("rename", "link"):
            assert step.target.parent == step.path.parent, "between folders: not known here"
            assert node is not None
            folder.change({step.target.name: node} if step.kind == "link" else {name: None, step.target.name: node})
        elif step.kind == "sync":
            assert node is not None, step.path
            node.sync()
        elif step.kind in ("write", "truncate") and isinstance(node, File):
            if step.kind == "truncate":
                node.truncate(step.offset)
            else:
                node.write(step.data, len(node.live) if step.offset == AT_END else step.offset)

    def _folder(self, path: Path) -> Folder:
        if path == self._root:
            return self._tree
        node: File | Folder = self._tree
        for name in path.relative_to(self._root).parts[:-1]:
            assert isinstance(node, Folder)
            node = node.live[name]
        assert isinstance(node, Folder)
        return node


def _read(path: Path) -> Folder:
    folder = Folder()
    folder.change({each.name: _read(each) if each.is_dir() else File(each.read_bytes()) for each in path.iterdir()})
    folder.sync()
    return folder


def _write_tree(folder: Folder, path: Path, chance: random.Random | None, written: dict[int, Path]) -> None:
    """`written`: where each file stands already, for those with several names."""
    for name, node in sorted(folder.after_cut(chance).items()):
        if isinstance(node, Folder):
            (path / name).mkdir(mode=0o700)
            _write_tree(node, path / name, chance, written)
        elif id(node) in written:
            (path / name).hardlink_to(written[id(node)])
        else:
            written[id(node)] = path / name
            (path / name).write_bytes(node.after_cut(chance))


def _rename(names: dict[str, File | Folder], change: dict[str, "File | Folder | None"]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _write(content: bytearray, data: bytes, offset: int) -> None:
    _truncate(content, max(len(content), offset))
    content[offset : offset + len(data)] = data


def _truncate(content: bytearray, length: int) -> None:
    del content[length:]
    content.extend(bytes(length - len(content)))
