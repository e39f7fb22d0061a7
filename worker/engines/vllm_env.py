"""The environment that vLLM needs, set where a worker is spawned: vLLM reads it while it is being imported.

Pure: imports no vllm. What the user has set wins, as long as it keeps nobody out.
"""

from collections.abc import Mapping

_PLUGIN = "bakehouse"
"""Our entry point's name in `vllm.general_plugins` (pyproject.toml)."""


def engine_environment(base: Mapping[str, str], *, accelerator: bool, cores: int, workers: int) -> dict[str, str]:
    """The variables to add to `base` for one worker process.

    `accelerator`: the worker has a GPU. `cores`: those of this host that its workers may use. `workers`: how
    many share them.
    """
    wanted = {
        # children start afresh: a fork of a process with threads can hang, and skips our plugin
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "TOKENIZERS_PARALLELISM": "false",
        # an allowed domain must not lead on to others
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
    }
    if not accelerator:
        # no second child with a busy spin: starts 5 s faster, and a core is left for the engine
        wanted["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        # one core stays for the worker itself; engines that share cores slow each other tenfold
        wanted["OMP_NUM_THREADS"] = str(max(1, (cores - 1) // max(1, workers)))
    added = {name: value for name, value in wanted.items() if name not in base}
    if base.get("VLLM_API_KEY"):
        added["VLLM_API_KEY"] = ""  # there is no port to guard, and our own calls carry no key
    if base.get("VLLM_ENABLE_RESPONSES_API_STORE"):
        # it keeps every response in memory, and answers at once to one that is to be made in the background
        added["VLLM_ENABLE_RESPONSES_API_STORE"] = "0"
    plugins = base.get("VLLM_PLUGINS")
    if plugins is not None and _PLUGIN not in plugins.split(","):
        added["VLLM_PLUGINS"] = f"{plugins},{_PLUGIN}" if plugins else _PLUGIN
    return added
