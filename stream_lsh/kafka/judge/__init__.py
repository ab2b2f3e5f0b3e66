"""The role judge: turns the replies of all shards into verdicts and pairs."""
