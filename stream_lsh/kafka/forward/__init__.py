"""The role forward: joins documents with their verdicts."""
