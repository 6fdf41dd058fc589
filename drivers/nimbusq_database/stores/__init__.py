"""The stores of `nimbusq.driver` on a database, one a file."""
