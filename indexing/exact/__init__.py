"""What isl decides: maps as relations, their images and inverses."""
