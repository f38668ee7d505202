"""Small parts of the core beside rejected alternatives; times as ratios within one run."""
