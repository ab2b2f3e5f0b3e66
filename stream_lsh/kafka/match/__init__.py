"""The role match: frames against the shards, as a Faust application."""
