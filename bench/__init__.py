"""Benchmarks that run from a clone: `python -m bench.peers`, .growth, .stages, .first_verdict; each has --help."""
