"""The pipeline on Kafka: the stages of the embedded engine as consumers, producers and Faust agents."""
