"""The engines a worker can keep warm: vLLM, and the simulated one."""
