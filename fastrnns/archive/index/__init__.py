"""The index: what the records of an archive say, as columns that a query engine reads; made from the files alone."""
