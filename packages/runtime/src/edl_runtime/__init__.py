"""What edl's services share beyond the messages that they exchange.

Here belong conventions that several processes of a job must follow alike: identities on disk, the
files and processes of a local job, logs and metrics, model zoos and trained models, and the names
of images. Services still talk only through ``edl_proto``; what only one package needs belongs into
that package.
"""
