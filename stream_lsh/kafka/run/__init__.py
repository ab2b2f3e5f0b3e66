"""The processes of a worker: the lives of a role, supervision, warming, metrics, health, logs."""
