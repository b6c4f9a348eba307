"""Collectives as schedules: what every rank sends and receives, as pure data, and what runs, checks and prices them."""
