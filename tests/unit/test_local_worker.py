"""How the embedded worker is started, and what is shown of its log when it ends."""

from pathlib import Path

import pytest

from common.settings import load
from producer.job_spec import EmbeddedWorker
from producer.local_worker import readable, worker_arguments, worker_environment
from producer.submission import served_name


def test_arguments_say_only_what_was_said() -> None:
    assert worker_arguments(EmbeddedWorker(engine="sim")) == ["--engine=sim"]
    worker = EmbeddedWorker(
        engine="vllm", model="/m/qwen", served_model_name="qwen", workers=2, sim_patterns=("fail=x",),
        vllm_flags=("--dtype", "half"),
    )  # fmt: skip
    assert worker_arguments(worker) == [
        "--engine=vllm", "--model=/m/qwen", "--served-model-name=qwen", "--workers=2", "--sim-pattern=fail=x",
        "--", "--dtype", "half",
    ]  # fmt: skip


def test_knobs_travel_and_what_is_the_producers_own_stays() -> None:
    settings = load(
        redis_url="redis://given", drain_timeout_s=7, metrics_port=9000, log_file="/tmp/p.log", exit_when_idle_s="1h"
    )
    base = {"PATH": "/bin", "BAKEHOUSE_LOG_FILE": "/tmp/p.log", "BAKEHOUSE_METRICS_PORT": "9000"}
    base["BAKEHOUSE_SIM_CALLS"] = "/tmp/calls"
    environment = worker_environment(settings, url="unix:///s", log_file=Path("/l"), base=base)
    assert environment["PATH"] == "/bin"
    assert environment["BAKEHOUSE_REDIS_URL"] == "unix:///s"
    assert environment["BAKEHOUSE_DRAIN_TIMEOUT_S"] == "7.0"
    assert environment["BAKEHOUSE_METRICS_PORT"] == "9001"
    assert environment["BAKEHOUSE_LOG_FILE"] == "/l"
    assert not {"BAKEHOUSE_JOBS", "BAKEHOUSE_EXIT_WHEN_IDLE_S"} & environment.keys()
    assert environment["BAKEHOUSE_SIM_CALLS"] == "/tmp/calls", "the simulated engine's, no knob"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("ModuleNotFoundError: No module named 'x'", "ModuleNotFoundError: No module named 'x'"),
        ('{"event": "worker_started", "level": "info"}', None),
        (
            '{"why": "3 failed starts", "event": "worker_gave_up", "level": "error"}',
            "worker_gave_up why=3 failed starts",
        ),
        ("[1]", "[1]"),
    ],
)
def test_only_what_went_wrong_is_shown(line: str, shown: str | None) -> None:
    assert readable(line) == shown


@pytest.mark.parametrize(("model", "name"), [("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"), ("/models/smollm2", "smollm2")])
def test_served_name(model: str, name: str) -> None:
    assert served_name(model) == name
