"""The formats of files of records: their readers and writers, and their detection."""
