"""Chaos: seeded faults on real processes in the middle of a job, and what comes of its lines.

Run as `python -m benchmarks.chaos`. `kinds` lists the faults, `arena` is what they befall, `run` is one of them once,
`judge` says what was lost, `figures` sums up, `matrix` writes docs/kill-matrix.md.
"""
