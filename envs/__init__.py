"""Environments an agent acts in. Records are plain dicts; nothing here knows models or the KV cache."""
