"""A schema registry with Confluent's API: its options, its client, and the schemas that are kept on disk."""
