"""Typed results -> ink. One module per kind of report; nothing here computes a number that results.py does not hold."""
