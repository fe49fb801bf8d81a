"""The bytes of files and of objects in stores: reading ahead, gzip, and atomic writing.

The formats of the content do not belong here.
"""
