"""Plain models: what is right, said in the simplest way."""
