"""Small parts of the core beside the ways that were not taken; times as ratios within one run."""
