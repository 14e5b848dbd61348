"""Clients of simulations: they speak the protocol as real ones do, never give up, and write down what they see."""
