"""Test doubles that more than one test module needs."""
