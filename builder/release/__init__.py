"""What a release is made of in a registry: tags, evidence, promotion."""
