"""Commands of operators: changes of the cloud at run time, surveys, and flooding."""
