"""Commands of operators: changes of the cloud at run time, and surveys."""
