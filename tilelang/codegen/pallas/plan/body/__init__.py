"""Body: statements of the author -> operations on registers, under their conditions."""
