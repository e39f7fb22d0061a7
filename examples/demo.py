"""The demo: the real engine on `requests.jsonl`, through the same command a user types, then checked line by line.

Run by `make demo`. It fails by itself when a result is missing, out of order, not 200, not vLLM's, or not an answer.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
REQUESTS = HERE / "requests.jsonl"
DISTINCT_SHARE = 0.95


def main() -> int:
    """Run the job, check its output, print what was found; the exit code of the first thing that is not right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder of the model")
    parser.add_argument("--output", type=Path, default=Path("demo-out/results.jsonl"))
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-P", "-m", "producer.cli", "run", str(REQUESTS), "-o", str(arguments.output)]
    command += [
        "--model",
        arguments.model,
        "--fresh",
        "--overwrite",
        "--",
        "--max-model-len",
        "2048",
        "--enforce-eager",
    ]
    ended = subprocess.run(command, check=False)
    if ended.returncode != 0:
        print(f"demo: `producer run` ended with {ended.returncode}", file=sys.stderr)
        return ended.returncode
    requests = read_lines(REQUESTS)
    results = read_lines(arguments.output)
    faults = list(find_faults(requests, results))
    for fault in faults:
        print(f"demo: {fault}", file=sys.stderr)
    if not faults:
        france = next(result for result in results if result["custom_id"] == "france")
        print(
            f"\n{len(results)} results in {arguments.output}, in order, all 200, all from {france['meta']['engine']}."
        )
        print(f"The capital of France, says the model: {answer(france)!r}")
    return 1 if faults else 0


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def answer(result: dict[str, Any]) -> str:
    """The text of a good result's first choice."""
    choice = result["response"]["body"]["choices"][0]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


def find_faults(requests: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[str]:
    """What is wrong with `results` as the answers to `requests`; empty when all is right."""
    if [request["custom_id"] for request in requests] != [result["custom_id"] for result in results]:
        return [f"{len(results)} results for {len(requests)} requests, or not in their order"]
    faults = [
        f"{result['custom_id']}: status {result['response']['status_code']}"
        for result in results
        if result["response"]["status_code"] != 200
    ]
    if faults:
        return faults
    faults += [
        f"{result['custom_id']}: answered by {result['meta']['engine']!r}"
        for result in results
        if not result["meta"]["engine"].startswith("vllm 0.32")
    ]
    distinct = len({answer(result) for result in results})
    if distinct < DISTINCT_SHARE * len(results):
        faults.append(f"only {distinct} of {len(results)} answers are distinct")
    if "Paris" not in next(answer(result) for result in results if result["custom_id"] == "france"):
        faults.append("the France row lacks Paris")
    return faults


if __name__ == "__main__":
    sys.exit(main())
