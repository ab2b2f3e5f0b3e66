"""The role sign: documents become signed frames."""
