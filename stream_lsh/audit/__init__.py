"""An audit of what an index has dropped (docs/how-to/audit.md)."""
