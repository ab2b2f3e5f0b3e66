"""The role sequence: frames get their place in the total order."""
