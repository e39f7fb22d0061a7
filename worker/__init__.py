"""One process = one GPU (or tensor-parallel group) = one warm engine."""
