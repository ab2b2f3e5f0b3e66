"""A copy of all shards of a pipeline. It follows the changelogs, writes to no topic, and answers queries."""
