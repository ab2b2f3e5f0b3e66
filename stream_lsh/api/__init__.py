"""The Python API: documents in, verdicts out, an index that stays. `stream_lsh` exports what is public."""
