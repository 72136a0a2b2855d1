"""Documents as whole pages: one file that needs nothing but itself, with charts that answer to pointers and keys."""
