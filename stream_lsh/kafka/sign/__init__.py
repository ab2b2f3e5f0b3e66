"""The role sign: turns documents into signed frames."""
