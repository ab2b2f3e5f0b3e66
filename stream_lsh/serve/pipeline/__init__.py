"""A service for a pipeline on Kafka, over its topics."""
