"""Functions times repetitions as one compiled program, with times, limits and statuses inside."""
