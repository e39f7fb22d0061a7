"""What the worker sets among vLLM's parsed flags, before the engine starts: sizes, what requests may reach, grammars.

Works on the parsed flags alone: imports no vllm. What the user gave stays.
"""

import dataclasses
import os
from argparse import Namespace
from collections.abc import Mapping

from worker.engines.model_digest import model_revision

NO_DOMAIN = "(none: the worker was given no --allowed-media-domains)"
"""Stands for an empty list of domains, which vLLM takes for all. No host can be called so."""
_CPU_MAX_NUM_SEQS = 64
"""On CPU a step costs about the same whatever it carries, up to here; vLLM's own default would spread the KV
cache thinner for little more."""
_CPU_KV_SHARE = 16
_CPU_KV_BYTES = (1 << 30, 8 << 30)
"""KV cache on CPU: a sixteenth of the memory, at least 1 and at most 8 GiB; vLLM's default takes 92 %."""


def set_cpu_defaults(arguments: Namespace, *, memory_bytes: int) -> None:
    """Sizes for an engine that shares the machine's memory, where the user gave none."""
    if arguments.max_num_seqs is None:
        arguments.max_num_seqs = _CPU_MAX_NUM_SEQS
    if arguments.kv_cache_memory_bytes is None and not os.environ.get("VLLM_CPU_KVCACHE_SPACE"):
        low, high = _CPU_KV_BYTES
        arguments.kv_cache_memory_bytes = min(max(memory_bytes // _CPU_KV_SHARE, low), high)


def forbid_fetching(arguments: Namespace, *, empty_folder: str) -> None:
    """Let no request make the engine fetch a URL or open a file, but from where the user's flags allow it.

    `empty_folder` is the only one files may come from: with none at all, asking for one would be the engine's fault
    (500), not the request's (400).
    """
    arguments.allowed_media_domains = arguments.allowed_media_domains or [NO_DOMAIN]
    arguments.allowed_local_media_path = arguments.allowed_local_media_path or empty_folder


def pin_grammar_backend(arguments: Namespace) -> None:
    """Compile every structured output with xgrammar where vLLM would choose one by the request.

    An engine compiles all its life with the backend of its first such request: one line that xgrammar does not take
    would break the tool calls of all others, and what it leaves out of a schema would pass unseen.
    """
    config = arguments.structured_outputs_config
    if config.backend == "auto":
        arguments.structured_outputs_config = dataclasses.replace(config, backend="xgrammar")


def adapters_of(arguments: Namespace, *, environment: Mapping[str, str]) -> dict[str, str]:
    """The adapters (LoRA) that requests may name as their model, and the revision of each."""
    modules = arguments.lora_modules or []
    return {
        module.name: model_revision(module.path, None, environment=environment) or module.path for module in modules
    }


def chat_template_of(arguments: Namespace) -> str | None:
    """The text of the chat template given by flag: a file's, or the flag itself."""
    given: str | None = arguments.chat_template
    if given is not None and os.path.isfile(given):
        with open(given, encoding="utf-8") as file:
            return file.read()
    return given
