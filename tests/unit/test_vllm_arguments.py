"""What the worker sets among vLLM's flags: nothing is fetched, one backend compiles grammars, adapters are models."""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from worker.engines.model_digest import model_digest
from worker.engines.vllm_arguments import (
    NO_DOMAIN,
    adapters_of,
    chat_template_of,
    forbid_fetching,
    pin_grammar_backend,
    set_cpu_defaults,
)


@dataclass
class _Grammars:
    backend: str = "auto"
    enable_in_reasoning: bool = True


def test_no_domain_and_no_file_unless_the_operator_says_so() -> None:
    arguments = Namespace(allowed_media_domains=None, allowed_local_media_path="")
    forbid_fetching(arguments, empty_folder="/empty")
    assert arguments == Namespace(allowed_media_domains=[NO_DOMAIN], allowed_local_media_path="/empty")


def test_what_the_operator_allows_stays() -> None:
    arguments = Namespace(allowed_media_domains=["a.org"], allowed_local_media_path="/pictures")
    forbid_fetching(arguments, empty_folder="/empty")
    assert arguments == Namespace(allowed_media_domains=["a.org"], allowed_local_media_path="/pictures")


def test_one_backend_compiles_every_grammar() -> None:
    shared = _Grammars()
    arguments = Namespace(structured_outputs_config=shared)
    pin_grammar_backend(arguments)
    assert arguments.structured_outputs_config == _Grammars("xgrammar")
    assert shared.backend == "auto"


def test_a_backend_that_was_chosen_stays() -> None:
    arguments = Namespace(structured_outputs_config=_Grammars("guidance"))
    pin_grammar_backend(arguments)
    assert arguments.structured_outputs_config.backend == "guidance"


def test_adapters_are_served_and_tell_models_apart(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    modules = [SimpleNamespace(name="a", path=str(tmp_path))]
    before = adapters_of(Namespace(lora_modules=modules), environment={})
    (tmp_path / "adapter_config.json").write_text('{"r": 8}')
    after = adapters_of(Namespace(lora_modules=modules), environment={})
    digests = {
        model_digest("r", dtype="d", quantisation=None, chat_template=None, adapters=adapters)
        for adapters in (None, before, after)
    }
    assert before.keys() == after.keys() == {"a"}
    assert len(digests) == 3
    assert adapters_of(Namespace(lora_modules=None), environment={}) == {}


def test_a_chat_template_is_a_file_or_its_own_text(tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text("from a file")
    assert chat_template_of(Namespace(chat_template=str(file))) == "from a file"
    assert chat_template_of(Namespace(chat_template="{{ x }}")) == "{{ x }}"
    assert chat_template_of(Namespace(chat_template=None)) is None


@pytest.mark.parametrize(("memory_gib", "cache_gib"), [(4, 1), (32, 2), (1024, 8)])
def test_a_cpu_engine_leaves_memory_to_others(memory_gib: int, cache_gib: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    arguments = Namespace(max_num_seqs=None, kv_cache_memory_bytes=None)
    set_cpu_defaults(arguments, memory_bytes=memory_gib << 30)
    assert arguments == Namespace(max_num_seqs=64, kv_cache_memory_bytes=cache_gib << 30)
