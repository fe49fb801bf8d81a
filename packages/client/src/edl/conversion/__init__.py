"""``edl data convert``: other people's formats become RecordIO files of tf.Example."""
