"""Where the time goes, and how far it is from the machine's limit; for profile and --roofline only."""
