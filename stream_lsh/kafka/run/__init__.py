"""The processes of a worker: the lives of a role, supervision, metrics, health, logs."""
