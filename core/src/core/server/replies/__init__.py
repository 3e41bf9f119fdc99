"""The answers of each endpoint, whole and streamed."""
