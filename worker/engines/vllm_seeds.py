"""vLLM on a CPU survives a seeded request whose prompt is computed in several steps. Runs in vLLM's own processes.

vLLM 0.32 samples every running request in every step, one whose prompt is not complete too. It then throws that token
away and winds the request's generator back, which torch's CPU generators cannot do: "CPU Generator does not use offset"
ends the engine core, and with it all that runs. It depends on what else a step has to compute, so one row may do it in
one run and not in the next. Here such a request is sampled without its generator: nothing needs to be wound back, and
the seed still gives the same tokens.
"""

import os
from typing import Any

from worker.engines.vllm_child import WORKER_PID_VARIABLE


def register() -> None:
    """In an engine of a worker, on a CPU: keep generators of unfinished prompts out of sampling. Elsewhere: nothing.

    An entry point of `vllm.general_plugins`; vLLM calls it once in each of its processes.
    """
    worker_pid = os.environ.get(WORKER_PID_VARIABLE)
    if worker_pid is None or worker_pid == str(os.getpid()):
        return
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm.v1.worker.cpu_model_runner import CPUModelRunner

        keep_generators(CPUModelRunner)


def keep_generators(runner: Any) -> None:
    """Let `sample_tokens` of `runner` (the class of vLLM's model runner) sample without generators to be wound back.

    The same dictionary of them is what sampling and winding back look into; a row is a request's place in it.
    """
    original = runner.sample_tokens

    def sample_tokens(self: Any, *args: Any, **kwargs: Any) -> Any:
        generators = self.input_batch.generators
        unfinished = self.discard_request_mask.np[: self.input_batch.num_reqs].nonzero()[0]
        aside = {row: generators.pop(row) for row in unfinished.tolist() if row in generators}
        try:
            return original(self, *args, **kwargs)
        finally:
            generators.update(aside)

    runner.sample_tokens = sample_tokens
