"""An index served over HTTP: one process owns it and answers many clients (docs/serve.md)."""
