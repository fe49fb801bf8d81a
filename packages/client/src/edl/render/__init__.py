"""What a person sees: messages, progress, errors and results."""
