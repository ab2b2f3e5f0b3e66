"""The processes of a worker: runs of a role, supervision, metrics, health, logs."""
