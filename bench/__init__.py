"""Benchmarks that run from a clone: `python -m bench.peers`, `bench.growth`, `bench.first_verdict`; each has --help."""
