"""From tiled fusions to loops: masks, online forms, panels, siblings."""
