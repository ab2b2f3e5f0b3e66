"""What tests on Kafka share."""
