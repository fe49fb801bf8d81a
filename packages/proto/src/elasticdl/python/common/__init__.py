"""Names that model files of ElasticDL import."""
