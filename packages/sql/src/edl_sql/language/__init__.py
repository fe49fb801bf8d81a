"""What statements and queries say, as pure code: texts in, values or errors out."""
