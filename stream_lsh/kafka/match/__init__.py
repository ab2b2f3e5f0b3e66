"""The role match: compares frames with the shards, as a Faust application."""
