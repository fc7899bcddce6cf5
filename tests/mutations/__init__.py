"""Schedules changed on purpose: every field of every kind of step, judged by what it computes, put before the prover."""
