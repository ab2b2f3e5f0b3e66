"""An index served over HTTP: one process owns it, many ask (docs/serve.md)."""
