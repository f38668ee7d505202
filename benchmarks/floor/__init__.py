"""Raw C UDP forwarders: the floor under every figure, compiled on demand."""
