"""Access rules as a capability of a leaf broker: durable rules, commands, and revocation."""
