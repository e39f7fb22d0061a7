"""A tiny Llama with random weights in a folder, its classifier and its adapter: what tests of the real engine serve.

Under 1 MB each and made in a few seconds; its answers are noise, its errors, counts and finish reasons are the
engine's own.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

_VERSION = "2"
_MODELS = Path(__file__).resolve().parent.parent / "models"
VOCABULARY_TOKENS = 1024
CONTEXT_TOKENS = 2048
_HIDDEN = 128
_LAYERS = 2
_RANK = 8
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_model(folder: Path | None = None) -> Path:
    """The folder with the model (default: `models/tiny` in the project), made when it is not there yet."""
    return _made(folder or _MODELS / "tiny", _write_model)


def tiny_classifier() -> Path:
    """The folder with a model like the tiny one that gives a text one score."""
    return _made(_MODELS / "tiny-classifier", _write_classifier)


def tiny_adapter() -> Path:
    """The folder with an adapter (LoRA) of the tiny model, which makes it say something else."""
    return _made(_MODELS / "tiny-adapter", _write_adapter)


def _made(target: Path, write: Callable[[Path], None]) -> Path:
    stamp = target / "made-by-tests"
    if stamp.is_file() and stamp.read_text() == _VERSION:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".tiny-", dir=target.parent))
    write(fresh)
    (fresh / "made-by-tests").write_text(_VERSION)
    shutil.rmtree(target, ignore_errors=True)
    try:
        os.rename(fresh, target)
    except OSError:  # another test process was faster; its folder is as good
        shutil.rmtree(fresh)
    return target


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_TOKENS,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=CONTEXT_TOKENS,
    ).save_pretrained(folder)


def _corpus() -> list[str]:
    """Text with enough different words for the whole vocabulary: Python's own manual."""
    return [text for _, text in sorted(topics.items())]


def _write_model(folder: Path) -> None:
    import torch
    from transformers import LlamaForCausalLM

    _write_tokenizer(folder)
    torch.manual_seed(0)
    LlamaForCausalLM(_config()).to(torch.bfloat16).save_pretrained(folder)
    generation = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    (folder / "generation_config.json").write_text(json.dumps(generation))


def _write_classifier(folder: Path) -> None:
    import torch
    from transformers import LlamaForSequenceClassification

    _write_tokenizer(folder)
    torch.manual_seed(0)
    LlamaForSequenceClassification(_config(num_labels=1)).to(torch.bfloat16).save_pretrained(folder)


def _write_adapter(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(1)
    weights = {}
    for layer in range(_LAYERS):
        for name, width in {"q_proj": _HIDDEN, "v_proj": _HIDDEN // 2}.items():
            place = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{place}.lora_A.weight"] = torch.randn(_RANK, _HIDDEN).bfloat16()
            weights[f"{place}.lora_B.weight"] = torch.randn(width, _RANK).bfloat16()
    save_file(weights, folder / "adapter_model.safetensors")
    facts = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": _RANK, "lora_alpha": 2 * _RANK, "bias": "none"}
    facts["target_modules"] = ["q_proj", "v_proj"]
    (folder / "adapter_config.json").write_text(json.dumps(facts))


def _config(**more: Any) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=VOCABULARY_TOKENS,
        hidden_size=_HIDDEN,
        intermediate_size=256,
        num_hidden_layers=_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        dtype="bfloat16",
        **more,
    )
