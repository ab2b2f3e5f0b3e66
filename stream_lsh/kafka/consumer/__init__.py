"""Shared parts of the roles: membership of a consumer group, and commits of outputs together with positions."""
