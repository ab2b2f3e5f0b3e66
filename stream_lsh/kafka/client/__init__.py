"""Reaching the brokers: connections, consumers and producers, and what goes wrong with them in plain words."""
