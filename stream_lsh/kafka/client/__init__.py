"""Reaching the brokers: connections, consumers and producers, and their errors in plain words."""
