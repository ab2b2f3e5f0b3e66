"""The role forward: documents joined with their verdicts."""
