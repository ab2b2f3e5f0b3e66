"""The role judge: the replies of all shards become verdicts and pairs."""
