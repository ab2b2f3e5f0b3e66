"""An index as tools of the Model Context Protocol, for agents that keep notes."""
