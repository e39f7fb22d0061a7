"""A `producer` whose clocks, the monotonic one too, are ahead by what a file says: as after a virtual machine's pause.

python -m tests.faults.jumping FILE PRODUCER-ARGUMENTS...

What sleeps in the kernel goes by the kernel's clock, as on such a machine.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from producer import cli


def ahead(clock: Callable[[], float], file: Path) -> Callable[[], float]:
    """`clock`, so many seconds ahead as `file` says when it is asked."""
    return lambda: clock() + float(file.read_text())


def jumping_command(file: Path, *arguments: object) -> list[str]:
    """`producer ARGUMENTS` that lives by `file`."""
    return [sys.executable, "-m", "tests.faults.jumping", str(file), *map(str, arguments)]


def main() -> None:
    """Be the producer."""
    name, *arguments = sys.argv[1:]
    time.monotonic = ahead(time.monotonic, Path(name))
    time.time = ahead(time.time, Path(name))
    sys.argv = ["producer", *arguments]
    cli.main()


if __name__ == "__main__":
    main()
