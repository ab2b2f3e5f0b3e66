"""An index served over HTTP: one process owns it and answers many clients (docs/how-to/serve.md)."""
