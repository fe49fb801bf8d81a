"""The client's decisions before, during and after a job, as pure code: facts in, values out."""
