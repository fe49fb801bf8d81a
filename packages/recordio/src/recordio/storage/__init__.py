"""The bytes of files and of objects in stores: reading ahead, gzip, and files that appear whole.

Formats do not belong here.
"""
