"""Scaling: fleets of 1 to 32 simulated workers against a perfect dispatcher that hands out one request at a time.

Real worker processes, server and collector; only the engine is simulated, and its steps take so long that two cores
carry 32 workers. The dispatcher is computed on the same rows.
"""
