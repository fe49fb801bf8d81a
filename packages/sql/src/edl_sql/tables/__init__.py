"""Tables on their way to records and back: queries that are read, columns that are written."""
