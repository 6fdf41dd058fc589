"""The sqs driver: Amazon SQS, its visibility timeout as the lease."""
