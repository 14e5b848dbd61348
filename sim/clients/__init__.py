"""The clients of simulations: they speak the protocol like real ones, retry without limit, and record what they see."""
