"""A pipeline as a picture: its parts and the ways of rows (``parts``), as a tree, Mermaid or SVG. Pure."""
