"""Owns jobs: input, journal, output. No GPU, no vllm import."""
