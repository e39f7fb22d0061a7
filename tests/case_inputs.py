"""Inputs of cases that are too big to keep as files; the lines are those of the corpus' own generator."""

import base64
import json
import os
import random
from pathlib import Path

from tests.case_checker import Case

FULL = "FULL_CASES" in os.environ
"""Whether big cases have all their lines; else a fifth of them, for everyday's sake."""
SHARE = 1 if FULL else 5


def big_case(folder: Path, name: str, *, lines: int, pad: int, packs: bool = True) -> Case:
    """Many ordinary lines, each with `pad` letters more; where it does not pack, they are random ones."""
    path, chance = folder / f"{name}_big.jsonl", random.Random(name)
    with path.open("w", encoding="utf-8") as file:
        for number in range(1, lines // SHARE + 1):
            letters = "p" * pad if packs else base64.b64encode(chance.randbytes(pad)).decode()[:pad]
            body = {
                "model": "test-model",
                "messages": [{"role": "user", "content": f"Say {number}."}],
                "max_tokens": 2,
                "temperature": 0,
                "metadata": {"pad": letters},
            }
            row = {"custom_id": f"g-{number:07}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(row) + "\n")
    return Case(name, str(path), f"L1-{lines // SHARE}=200 @0")
