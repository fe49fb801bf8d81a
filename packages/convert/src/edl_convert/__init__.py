"""Tables, images and records of other formats become records of tf.Example: ``edl data``.

What reads or writes files of data belongs here; databases belong to ``edl_sql``.
"""
