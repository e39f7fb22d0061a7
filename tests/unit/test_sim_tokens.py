"""The count of tokens a simulated engine has made: what waste is measured by, so it must outlive its process."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_sim_engine import CHAT, chat, run
from worker.engines.sim_engine import SimEngine
from worker.engines.sim_tokens import TOKENS_VARIABLE, tokens_made

DOOMED = """
import os, signal, sys
from pathlib import Path
from worker.engines.sim_tokens import TokenCount
count = TokenCount(Path(sys.argv[1]))
count.add(3)
count.add(4)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_every_token_of_every_request_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKENS_VARIABLE, str(tmp_path))
    engine = SimEngine("token", places=2)

    async def work() -> None:
        await asyncio.gather(*(engine.post(CHAT, chat(f"say {n}", max_tokens=n)) for n in (1, 2, 5)))

    run(engine, work)
    assert tokens_made(tmp_path) == 8


def test_a_cancelled_request_has_cost_what_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKENS_VARIABLE, str(tmp_path))
    engine = SimEngine("token", seconds=1.0)

    async def work() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.post(CHAT, chat(max_tokens=10)), 3.5)

    run(engine, work)
    assert tokens_made(tmp_path) == 3


def test_the_count_outlives_its_process(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", DOOMED, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert tokens_made(tmp_path) == 7
