"""Programs on many processes over MPI: collectives as steps, the agreement at the start, and how failures end all."""
