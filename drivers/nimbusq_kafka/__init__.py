"""The kafka driver: a topic a queue, claimed by a consumer group."""
