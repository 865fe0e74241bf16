"""Records for people: facts of one or several records, laid out as pages and pictures."""
