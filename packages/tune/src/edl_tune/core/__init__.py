"""All decisions about a study, as pure code: events in, effects out."""
