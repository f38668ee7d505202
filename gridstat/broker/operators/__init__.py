"""What people may ask of a broker: change the cloud while it runs, and look into it."""
