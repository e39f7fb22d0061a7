"""Rows for benchmarks: seeded, so that every side and every repeat runs the same ones."""

import json
import math
import random
from pathlib import Path

SEED = 20261130
CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
WORDS = (
    "oven",
    "flour",
    "yeast",
    "butter",
    "sugar",
    "salt",
    "water",
    "milk",
    "honey",
    "cream",
    "crumb",
    "dough",
    "glaze",
)


def write_heavy_tailed(path: Path, rows: int, *, model: str, median_tokens: int = 32, longest_tokens: int = 400) -> int:
    """Chat rows with lognormal output lengths (longest >= 10 x median), `ignore_eos`; returns all output tokens."""
    random_ = random.Random(SEED)
    lengths = [min(longest_tokens, max(1, round(median_tokens * math.exp(random_.gauss(0, 1))))) for _ in range(rows)]
    lengths[random_.randrange(rows)] = longest_tokens
    with path.open("w", encoding="utf-8") as file:
        for number, length in enumerate(lengths):
            text = f"Write about {' '.join(random_.choices(WORDS, k=12))}, number {number}."
            file.write(line(f"row-{number}", exact(model, [{"role": "user", "content": text}], length)))
    return sum(lengths)


def write_padded(path: Path, rows: int, *, model: str, row_bytes: int = 1024) -> None:
    """Rows of `row_bytes` each for an engine that costs nothing."""
    random_ = random.Random(SEED)
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            words = " ".join(random_.choices(WORDS, k=row_bytes // 5))
            body = {"model": model, "messages": [{"role": "user", "content": ""}], "max_tokens": 8}
            empty = len(line(f"row-{number:07d}", body))
            body["messages"] = [{"role": "user", "content": words[: max(0, row_bytes - empty)]}]
            file.write(line(f"row-{number:07d}", body))


def write_prefixes(path: Path, rows: int, *, model: str, prefixes: int, prefix_words: int, tokens: int) -> int:
    """Chat rows in random order that share `prefixes` system messages of so many words; returns all output tokens."""
    random_ = random.Random(SEED)
    shared = [f"Rules {number}: {' '.join(random_.choices(WORDS, k=prefix_words))}." for number in range(prefixes)]
    order = [number % prefixes for number in range(rows)]
    random_.shuffle(order)
    with path.open("w", encoding="utf-8") as file:
        for number, which in enumerate(order):
            question = f"Judge {' '.join(random_.choices(WORDS, k=12))}, number {number}."
            messages = [{"role": "system", "content": shared[which]}, {"role": "user", "content": question}]
            file.write(line(f"row-{number}", exact(model, messages, tokens)))
    return rows * tokens


def write_long(path: Path, rows: int, *, model: str, words: tuple[int, int], tokens: int) -> int:
    """Chat rows with prompts of `words`, fewest and most, that share nothing; returns all output tokens."""
    random_ = random.Random(SEED)
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            text = f"Number {number}: {' '.join(random_.choices(WORDS, k=random_.randint(*words)))}. Sum it up."
            file.write(line(f"row-{number}", exact(model, [{"role": "user", "content": text}], tokens)))
    return rows * tokens


def write_mixed(path: Path, rows: int, *, model: str, embedder: str, words: int = 60) -> int:
    """Heavy-tailed chat rows, every other one replaced by a text to embed; returns all output tokens."""
    write_heavy_tailed(path, rows, model=model)
    random_, tokens = random.Random(SEED), 0
    chats = path.read_text(encoding="utf-8").splitlines(keepends=True)
    with path.open("w", encoding="utf-8") as file:
        for number, chat in enumerate(chats):
            if number % 2:
                text = f"Number {number}: {' '.join(random_.choices(WORDS, k=words))}."
                chat = line(f"row-{number}", {"model": embedder, "input": text}, url=EMBEDDINGS)
            else:
                tokens += json.loads(chat)["body"]["max_tokens"]
            file.write(chat)
    return tokens


def exact(model: str, messages: list[dict[str, str]], tokens: int) -> dict[str, object]:
    """The body of a chat call whose answer has exactly so many tokens."""
    return {"model": model, "messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


def line(custom_id: str, body: dict[str, object], *, url: str = CHAT) -> str:
    """One OpenAI batch line, LF included."""
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}) + "\n"
