"""The fleet, one worker, against the bare engine fed in other ways: `python -m benchmarks.engine`."""
