"""Receipts: what the coordinator signs about each request, and how anybody checks it offline.

A receipt is one link of a chain (one chain per coordinator). Its envelope is a JSON object:

    {"body": {…}, "chain": "9f2c…", "format": "brain-receipt-1", "prev": "…", "seq": 7,
     "hash": "…", "path": ["L…", "R…"], "signer": "…", "public_key": "…", "signature": "…"}

- `hash` is SHA-256 over the canonical JSON (RFC 8785) of the first five members, in lower-case hex.
- `prev` is the hash of the link before it in the same chain; 64 zeros for `seq` 1.
- Links that were committed together share one signature: it stands under the root of a hash tree over their hashes, and
  `path` leads from this link's hash to that root. Each step is `L` or `R` (the side of the sibling) and the sibling's
  hash; the parent is SHA-256 over the byte 0x01, the left and the right hash. A link committed alone has an empty path.
- `signature` (base64) is Ed25519 by `public_key` (base64, raw) over `brain-receipt v1`, a zero byte, and the root.
- `signer` is the first 16 hex digits of SHA-256 over the raw public key. A chain is named after its first signer, so the
  name alone says which key may begin it; later keys are endorsed by the one before (`brain_coord.receipts.history`).
"""
