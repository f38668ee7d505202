"""A running grid as a person sees it: tables of a survey, and one run from start to end."""
