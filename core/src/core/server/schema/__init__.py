"""Requests (pydantic: validated, with the field at fault named) and responses (msgspec: fast to write)."""
