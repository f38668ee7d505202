"""The broker's talk with its routers: sessions, health, and contracts that change their paths."""
