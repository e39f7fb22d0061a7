"""The command `producer` from outside: its help is quick and complete, and what it refuses it refuses with advice."""

import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from producer.cli import app, main
from producer.session import resumable
from tests.processes import environment, producer_command

HEAVY = ("celery", "kombu", "redis", "pydantic", "psutil", "prometheus_client", "yaml")
VERBS = ("run", "enqueue", "collect", "pause", "resume", "cancel", "rerun", "wait", "status", "get")


def test_help_waits_for_nothing_heavy() -> None:
    """What takes time to import is what makes a command slow to answer; seconds would only measure the machine."""
    program = (
        "import sys; from typer.testing import CliRunner; from producer.cli import app;"
        "print(CliRunner().invoke(app, ['--help']).output);"
        f"print('heavy:', [name for name in {HEAVY} if name in sys.modules])"
    )
    command = [sys.executable, "-P", "-c", program]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert all(verb in ended.stdout for verb in VERBS)
    assert "heavy: []" in ended.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_ends_its_help_with_examples(verb: str) -> None:
    shown = CliRunner().invoke(app, [verb, "--help"])
    assert shown.exit_code == 0
    assert f"producer {verb}" in shown.output.partition("Examples:")[2]


def test_help_needs_neither_redis_nor_celery_nor_pydantic() -> None:
    code = "import sys, producer.cli; print(*sys.modules)"
    ended = subprocess.run(
        [*producer_command()[:2], "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert not {"redis", "celery", "pydantic", "vllm", "torch"} & set(ended.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        pytest.param(("run",), "name a JSONL file", id="no input"),
        pytest.param(("run", "INPUT"), "--engine sim", id="no model"),
        pytest.param(("run", "INPUT", "--model", "./not-there"), "no such model folder", id="no such folder"),
        pytest.param(("run", "not-there.jsonl", "--engine", "sim"), "not-there.jsonl", id="no such input"),
        pytest.param(("run", "INPUT", "other", "--engine", "sim"), "unexpected argument", id="stray argument"),
        pytest.param(("run", "-", "--follow", "--engine", "sim"), "standard input is read as it comes", id="follow -"),
        pytest.param(("run", "INPUT", "--until-idle", "9s", "--engine", "sim"), "add --follow", id="idle file"),
        pytest.param(("run", "-", "--until-idle", "soon", "--engine", "sim"), "until_idle_s", id="no duration"),
        pytest.param(("run", "INPUT", "--input-file", "INPUT"), "give one", id="input twice"),
        pytest.param(
            ("run", "INPUT", "--engine", "sim", "--", "--dtype", "half"), "simulated", id="vLLM flags for sim"
        ),
        pytest.param(("run", "INPUT", "--model", "m", "--sim-places", "2"), "--engine sim", id="sim flags for vLLM"),
        pytest.param(
            ("run", "INPUT", "--engine", "sim", "--redis-url", "redis://u:pa55@h/0"), "worker start", id="worker flags"
        ),
        pytest.param(("run", "INPUT", "--engine", "sim", "--batch-size", "0"), "batch_size", id="bound"),
        pytest.param(("run", "INPUT", "--engine", "sim", "--config", "no.yaml"), "no.yaml", id="no such config"),
        pytest.param(
            ("run", "INPUT", "--engine", "sim", "-o", "INPUT"), "the output is the input", id="output = input"
        ),
        pytest.param(("collect",), "--all", id="collect what"),
        pytest.param(("resume", "no-such-job"), "no job no-such-job", id="no such job"),
        pytest.param(("get", "no-such-job", "a"), "no job no-such-job", id="get of no such job"),
    ],
)
def test_refused_before_any_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    advice: str,
) -> None:
    source, jobs = tmp_path / "in.jsonl", tmp_path / "jobs"
    source.write_text('{"custom_id": "a", "prompt": "b"}\n')
    given = [str(source) if word == "INPUT" else word for word in arguments]
    monkeypatch.setattr("sys.argv", ["producer", given[0], "--jobs", str(jobs), *given[1:]])
    monkeypatch.setattr("common.log.configure", lambda **_: None)
    with capture_logs(), pytest.raises(SystemExit) as ended:
        main()
    output, talk = capsys.readouterr()
    assert ended.value.code == 2, talk
    assert advice in " ".join(talk.replace("│", " ").split())
    assert "pa55" not in talk
    assert "Traceback" not in talk
    assert output == ""
    assert not [path for path in jobs.glob("*") if not path.name.startswith(".")]


def test_any_other_error_ends_with_3_and_the_way_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        with resumable("job-1"):
            raise ZeroDivisionError("by nought")

    monkeypatch.setattr("producer.cli.app", fail)
    monkeypatch.setattr("producer.cli.log_failure", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    assert capsys.readouterr().err == "producer: ZeroDivisionError: by nought\ncontinue: producer resume job-1\n"
