"""Errors that end a command with one line for the person who typed it."""

from __future__ import annotations


class UserError(Exception):
    """A mistake of the user's: the message says what is wrong and what to do. Exit status 2."""


class InfrastructureError(Exception):
    """Something outside the program and the user's input failed. Exit status 3."""
