"""The master in a pod of a Job, and the pods of its workers and parameter servers.

Code that runs in the master's pod belongs here. It builds on the packages of the master, and never
imports the client's half of this package.
"""
