"""Bytes of files and URIs: reading ahead, gzip, and files that appear whole."""
