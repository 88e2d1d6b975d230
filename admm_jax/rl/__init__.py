"""Reinforcement learning as functions of arrays: networks, distributions, advantages, losses."""
