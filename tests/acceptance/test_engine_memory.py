"""An engine core that runs out of memory while it runs: the worker learns that from the core's last words."""

import os
from pathlib import Path

import pytest

from common.errors import EngineMemoryError
from tests.acceptance.engine_thread import TINY_FLAGS, chat, vllm_host
from tests.models import tiny_model

SPOILED = """
import os, sys, threading, time

def spoil():
    name = "vllm.v1.core.sched.scheduler"
    while not hasattr(sys.modules.get(name), "Scheduler"):
        time.sleep(0.02)
    scheduler = sys.modules[name].Scheduler
    schedule = scheduler.schedule

    def spoiled(self, *arguments, **named):
        if os.path.exists(os.environ["OUT_OF_MEMORY_FROM"]):
            import torch
            raise torch.OutOfMemoryError("tried to allocate 2.00 GiB")
        return schedule(self, *arguments, **named)

    scheduler.schedule = spoiled

threading.Thread(target=spoil, daemon=True).start()
"""
"""Put before everything that a Python process of the engine does; only the core has a scheduler that runs."""


@pytest.mark.engine
def test_an_engine_that_runs_out_of_memory_says_so(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SPOILED)
    full = tmp_path / "full"
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    with vllm_host(tiny_model(), *TINY_FLAGS, PYTHONPATH=path, OUT_OF_MEMORY_FROM=str(full)) as engine:
        assert engine.post(chat()).status == 200
        full.touch()
        with pytest.raises(EngineMemoryError, match=r"tried to allocate 2\.00 GiB"):
            engine.post(chat())
