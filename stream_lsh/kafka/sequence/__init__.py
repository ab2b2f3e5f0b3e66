"""The role sequence: gives frames their place in the total order."""
