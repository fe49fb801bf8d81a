"""Names that model files written for ElasticDL import."""
