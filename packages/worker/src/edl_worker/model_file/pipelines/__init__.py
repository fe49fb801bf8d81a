"""Input pipelines: from the records of a task to minibatches."""
