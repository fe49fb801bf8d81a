"""Tasks of every type: how a worker gets them, runs them and reports them."""
