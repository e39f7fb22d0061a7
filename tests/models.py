"""A tiny Llama with random weights in a folder: what tests of the real engine serve.

Under 1 MB and made in a few seconds; its answers are noise, its errors, counts and finish reasons are the
engine's own.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

_VERSION = "2"
_ROOT = Path(__file__).resolve().parent.parent
VOCABULARY_TOKENS = 1024
CONTEXT_TOKENS = 2048
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_model(folder: Path | None = None) -> Path:
    """The folder with the model (default: `models/tiny` in the project), made when it is not there yet."""
    target = folder or _ROOT / "models" / "tiny"
    stamp = target / "made-by-tests"
    if stamp.is_file() and stamp.read_text() == _VERSION:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".tiny-", dir=target.parent))
    _write_tokenizer(fresh)
    _write_weights(fresh)
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


def _write_weights(folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY_TOKENS,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        dtype="bfloat16",
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    generation = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    (folder / "generation_config.json").write_text(json.dumps(generation))
