"""What a running grid looks like: observations become figures, figures become tables or JSON."""
