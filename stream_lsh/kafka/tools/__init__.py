"""Tools around the pipeline: a local broker, sending files to a topic, printing topics, rebuilding, monitoring."""
