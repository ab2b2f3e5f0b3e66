"""Records that are encoded with schemas of a Schema Registry."""
