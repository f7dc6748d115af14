"""Small leaf modules that every layer of binpoint may import."""
