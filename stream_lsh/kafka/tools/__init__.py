"""Around the pipeline: a broker to try out, files onto topics, topics onto the terminal, rebuilding."""
