"""Built-in actions, one module a domain. The registry's loader imports them; nothing else does."""
