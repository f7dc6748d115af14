"""The `.bp` network language: text -> syntax -> checked network graph, and back to text."""
