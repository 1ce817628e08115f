"""The program in one place: from a project file to a published image."""
