"""A job whose input grows, for tests with real processes: a pipe or a followed file, and the command that reads it."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.jobs import wait_for_results
from tests.processes import environment, producer_command, started
from tests.servers import Server

QUICK = ("--linger", "0.2")


def line_of(number: int) -> bytes:
    """The request `r-NUMBER`."""
    return json.dumps({"custom_id": f"r-{number}", "prompt": f"say {number}", "max_tokens": 8}).encode() + b"\n"


def lines_of(numbers: range) -> bytes:
    """The requests of these numbers."""
    return b"".join(map(line_of, numbers))


class Growing:
    """One job whose input grows, on a fleet, and its command."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.server = folder, server
        self.jobs, self.output, self.source = folder / "jobs", folder / "out.jsonl", folder / "in.jsonl"
        self.log = folder / "run.log"
        self.place = ("--jobs", self.jobs, "--redis-url", server.url)

    def arguments(self, verb: str, *arguments: object) -> list[object]:
        """`VERB ARGUMENTS` of this job."""
        return [verb, *arguments, "-o", self.output, "--model", "m", *self.place, *QUICK]

    @contextmanager
    def piped(self, verb: str = "run", *more: object) -> Iterator[tuple["subprocess.Popen[bytes]", IO[bytes]]]:
        """The command reading a pipe, and the pipe's other end; killed at the end."""
        with self.log.open("ab") as log:
            run = subprocess.Popen(
                producer_command(*self.arguments(verb, "-", *more)),
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        assert run.stdin is not None
        try:
            yield run, run.stdin
        finally:
            run.kill()
            run.wait()
            print(self.log.read_text()[-3000:])

    @contextmanager
    def following(self, verb: str = "run", *more: object) -> Iterator["subprocess.Popen[bytes]"]:
        """The command following the file."""
        with started(producer_command(*self.arguments(verb, "--follow", self.source, *more)), log=self.log) as run:
            yield run

    def append(self, numbers: range) -> None:
        """Let the followed file grow."""
        with self.source.open("ab") as file:
            file.write(lines_of(numbers))

    def await_results(self, run: "subprocess.Popen[bytes]", least: int) -> None:
        """Block until the ordered file has so many lines."""
        wait_for_results(self.output, run, at_least=least, log=self.log)

    def await_end(self, run: "subprocess.Popen[bytes]", code: int) -> str:
        """Block until the command ends, as it should; returns what it said."""
        assert run.wait(60) == code, self.log.read_text()
        return " ".join(self.log.read_text().split())

    def again(self, *more: object, content: bytes | None = None) -> "subprocess.CompletedProcess[str]":
        """`run` on standard input, or on the followed file where there is none, to its end."""
        source = ["--follow", self.source] if content is None else ["-"]
        ended = subprocess.run(
            producer_command(*self.arguments("run", *source, *more)),
            env=environment(),
            input=content,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return subprocess.CompletedProcess(ended.args, ended.returncode, ended.stdout.decode(), ended.stderr.decode())
