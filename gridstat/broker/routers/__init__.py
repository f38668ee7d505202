"""Protocol between a broker and its routers: sessions, health, and contracts that change paths."""
