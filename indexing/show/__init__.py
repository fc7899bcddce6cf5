"""Maps and expressions as text, LaTeX and HTML, and as sympy's."""
