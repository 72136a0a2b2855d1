"""From the rows of CSV files to pictures: readings, axes and notes make a `Picture`, drawing makes a file of it."""
