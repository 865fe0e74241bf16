"""Where the time goes, and how far it is from what the machine can do; imported by profile and by --roofline only."""
