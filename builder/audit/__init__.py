"""From wheel files to signals, from signals to findings."""
