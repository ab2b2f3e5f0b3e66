"""A service over the topics of a pipeline on Kafka."""
