"""The pipeline on Kafka: the stages of the embedded engine, run as Kafka consumers, producers and Faust agents."""
