"""An index as tools of the Model Context Protocol, for agents that keep notes."""

FOR_NOTES = {"shingles": "chars:3", "threshold": 0.5, "on_conflict": "update"}
"""Settings of a new index unless others are given. Short texts have few words in common, even when one is a copy of the
other with two words changed: see docs/explanation/defaults.md."""
MEASURES = ("jaccard", "containment")
"""Those that compare notes."""
