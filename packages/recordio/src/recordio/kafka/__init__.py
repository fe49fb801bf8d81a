"""Topics of Apache Kafka behind the reader port: a range of a partition is read like a file.

Code that talks to brokers belongs here. What a job does with new records does not.
"""
