"""Measured claims, each one command; run as `python -m benchmarks.NAME`."""
