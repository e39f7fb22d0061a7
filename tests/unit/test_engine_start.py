"""What surrounds an engine's start: its environment, the errors it ends with, the hook in its children."""

import json
import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.errors import EngineMemoryError, EngineStartError
from worker.engines.start_failure import death_error, refuse_flags, start_error
from worker.engines.vllm_child import _LastWords, register
from worker.engines.vllm_env import engine_environment


def test_the_users_own_environment_wins() -> None:
    base = {"OMP_NUM_THREADS": "7", "VLLM_NO_USAGE_STATS": "0"}
    added = engine_environment(base, accelerator=False, cores=4, workers=1)
    assert not set(added) & set(base)
    assert added["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert added["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"


@pytest.mark.parametrize(("cores", "workers", "threads"), [(1, 1, "1"), (2, 1, "1"), (16, 1, "15"), (16, 4, "3")])
def test_engines_share_the_cores(cores: int, workers: int, threads: str) -> None:
    added = engine_environment({}, accelerator=False, cores=cores, workers=workers)
    assert added["OMP_NUM_THREADS"] == threads


def test_with_a_gpu_vllm_decides_about_threads_and_children() -> None:
    added = engine_environment({}, accelerator=True, cores=16, workers=8)
    assert "OMP_NUM_THREADS" not in added
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in added


@pytest.mark.parametrize(("given", "wanted"), [("", "bakehouse"), ("a,b", "a,b,bakehouse"), ("bakehouse", None)])
def test_a_list_of_allowed_plugins_lets_ours_in(given: str, wanted: str | None) -> None:
    added = engine_environment({"VLLM_PLUGINS": given}, accelerator=True, cores=1, workers=1)
    assert added.get("VLLM_PLUGINS") == wanted
    assert "VLLM_PLUGINS" not in engine_environment({}, accelerator=True, cores=1, workers=1)


def test_an_allowed_domain_does_not_lead_on_to_others() -> None:
    assert engine_environment({}, accelerator=True, cores=1, workers=1)["VLLM_MEDIA_URL_ALLOW_REDIRECTS"] == "0"


@pytest.mark.parametrize(("given", "wanted"), [({}, None), ({"VLLM_ENABLE_RESPONSES_API_STORE": "1"}, "0")])
def test_no_engine_keeps_responses(given: dict[str, str], wanted: str | None) -> None:
    added = engine_environment(given, accelerator=True, cores=1, workers=1)
    assert added.get("VLLM_ENABLE_RESPONSES_API_STORE") == wanted


def test_a_key_for_vllms_port_does_not_shut_us_out() -> None:
    added = engine_environment({"VLLM_API_KEY": "secret"}, accelerator=True, cores=1, workers=1)
    assert added["VLLM_API_KEY"] == ""


@pytest.mark.parametrize(
    ("error", "is_permanent"),
    [
        (ValueError("max_model_len is too large\nsecond line"), True),
        (SystemExit(2), True),
        (MemoryError(), True),
        (OSError("no route to host"), False),
        (RuntimeError("Engine core initialization failed."), False),
    ],
)
def test_which_start_failures_are_for_good(error: BaseException, is_permanent: bool) -> None:
    failure = start_error(error, model="m")
    assert failure.permanent is is_permanent
    assert failure.do
    assert "\n" not in str(failure)


def test_a_start_error_stays_as_it_is() -> None:
    error = EngineStartError("x", permanent=False)
    assert start_error(error, model="m") is error


@pytest.mark.engine
@pytest.mark.parametrize(("name", "words"), [("GatedRepoError", "gated"), ("RepositoryNotFoundError", "no model m")])
def test_the_hubs_refusals_are_told_apart(name: str, words: str) -> None:
    hub = pytest.importorskip("huggingface_hub.errors")
    refusal = getattr(hub, name).__new__(getattr(hub, name))
    error = OSError("You are trying to access a gated repo.")
    error.__cause__ = refusal
    failure = start_error(error, model="m")
    assert failure.permanent
    assert words in failure.what


@pytest.mark.engine
@pytest.mark.parametrize(
    ("status", "words"), [(401, "does not accept the token"), (403, "may not read the model m"), (500, "did not start")]
)
def test_a_token_that_is_refused(status: int, words: str) -> None:
    kind = pytest.importorskip("huggingface_hub.errors").HfHubHTTPError
    refusal = kind.__new__(kind)
    refusal.response = SimpleNamespace(status_code=status)
    error = OSError("There was a specific connection error.")
    error.__cause__ = refusal
    failure = start_error(error, model="m")
    assert words in failure.what
    assert failure.permanent is (status != 500)


def test_what_a_child_of_the_engine_noted_is_the_cause(tmp_path: Path) -> None:
    words = _LastWords(tmp_path / "failure")
    for error in (ValueError("the cache is\ntoo small"), OSError("a consequence")):
        try:
            raise error
        except (ValueError, OSError):
            words.emit(logging.LogRecord("vllm", logging.ERROR, "", 0, "failed to start", (), sys.exc_info()))
    failure = start_error(RuntimeError("see above"), model="m", failure_file=tmp_path / "failure")
    assert failure.permanent
    assert failure.what == "the engine did not start: ValueError: the cache is too small"
    nothing = start_error(RuntimeError("see above"), model="m", failure_file=tmp_path / "absent")
    assert not nothing.permanent


def test_flags_that_vllm_does_not_know() -> None:
    with pytest.raises(EngineStartError, match="--max-len") as caught:
        refuse_flags("unrecognized arguments: --max-len 5")
    assert caught.value.permanent


@pytest.mark.parametrize("worker_pid", [None, str(os.getpid())], ids=["no worker", "the worker itself"])
def test_outside_a_workers_child_the_hook_does_nothing(worker_pid: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(parent_pid: int) -> None:
        raise AssertionError

    monkeypatch.setattr("worker.engines.vllm_child.die_with_parent", fail)
    monkeypatch.delenv("BAKEHOUSE_WORKER_PID", raising=False)
    if worker_pid is not None:
        monkeypatch.setenv("BAKEHOUSE_WORKER_PID", worker_pid)
    register()


@pytest.mark.parametrize(
    ("kinds", "lacked"),
    [(["OutOfMemoryError", "RuntimeError"], True), (["MemoryError"], True), (["RuntimeError"], False), (None, False)],
)
def test_an_engine_that_ran_out_of_memory_is_told_from_other_deaths(
    tmp_path: Path, kinds: list[str] | None, lacked: bool
) -> None:
    file = tmp_path / "failure"
    if kinds is not None:
        file.write_text(json.dumps({"kinds": kinds, "text": "tried to allocate\n2 GiB"}))
    error = death_error(file)
    assert isinstance(error, EngineMemoryError) == lacked
    assert ("tried to allocate 2 GiB" in str(error)) == lacked
