"""Paged keys and values, one row a token and head."""
