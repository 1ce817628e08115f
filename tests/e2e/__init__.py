"""The command line on real input: real indexes, registries, engines and wheels."""
