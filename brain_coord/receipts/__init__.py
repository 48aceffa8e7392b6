"""Receipts: canonical body, signature, chain, verification."""
