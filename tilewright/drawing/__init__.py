"""What `tilewright.pictures` is drawn with: figures, graphs, panels."""
