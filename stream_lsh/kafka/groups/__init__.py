"""The role group: folds memberships into groups, and applies the rules of alerts."""
