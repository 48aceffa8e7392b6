"""Join tokens: statements on one connection."""

from sqlalchemy import Connection, case, insert, or_, select, update

from brain_coord.store import tables
from brain_coord.store.errors import TokenRejected
from brain_coord.store.records import JoinToken
from brain_coord.store.secrets import digest, new_secret

_TOKENS = tables.join_tokens
_USES = tables.token_uses
_RECORD = [
    _TOKENS.c[name]
    for name in ("token_id", "prefix", "operator", "label", "uses_left", "created_s", "expires_s", "revoked_s")
]
_NEXT_STEP = "Ask the coordinator's operator for a new token (`brain-coord token create`)"


def create_token(
    connection: Connection,
    now_s: float,
    *,
    operator: bool = False,
    uses: int | None = None,
    ttl_s: float | None = None,
    label: str | None = None,
) -> tuple[JoinToken, str]:
    """A new token, and its text: shown now and never again."""
    secret = new_secret("t")
    expires_s = None if ttl_s is None else now_s + ttl_s
    token = JoinToken(secret.public_id, secret.prefix, operator, label, uses, now_s, expires_s)
    connection.execute(
        insert(_TOKENS).values(
            token_id=token.token_id,
            sha256=secret.sha256,
            prefix=token.prefix,
            operator=operator,
            label=label,
            uses_left=uses,
            created_s=now_s,
            expires_s=expires_s,
        )
    )
    return token, secret.text


def redeem_token(connection: Connection, secret: str, node_id: str, now_s: float) -> JoinToken | TokenRejected:
    """Admit a node by a token: uses it up by one for a new node, by nothing for one it has admitted before.

    A refusal is returned, not raised, so that it does not undo what else stands in the same transaction.
    """
    token_id = connection.execute(select(_TOKENS.c.token_id).where(_TOKENS.c.sha256 == digest(secret))).scalar()
    if token_id is None:
        return TokenRejected("token_unknown", "this join token is not known here", _NEXT_STEP)
    # The update locks the row, so that of two nodes that come at once with the last use only one is admitted.
    admitted = select(_USES.c.node_id).where(_USES.c.token_id == token_id, _USES.c.node_id == node_id).exists()
    good = (
        update(_TOKENS)
        .where(
            _TOKENS.c.token_id == token_id,
            _TOKENS.c.revoked_s.is_(None),
            or_(
                admitted,
                or_(_TOKENS.c.expires_s.is_(None), _TOKENS.c.expires_s > now_s)
                & or_(_TOKENS.c.uses_left.is_(None), _TOKENS.c.uses_left > 0),
            ),
        )
        .values(uses_left=case((admitted, _TOKENS.c.uses_left), else_=_TOKENS.c.uses_left - 1))
    )
    accepted = connection.execute(good).rowcount == 1
    token = JoinToken(*connection.execute(select(*_RECORD).where(_TOKENS.c.token_id == token_id)).one())
    if not accepted:
        return _refusal(token, now_s)
    if connection.execute(select(admitted)).scalar() is not True:
        connection.execute(insert(_USES).values(token_id=token_id, node_id=node_id, used_s=now_s))
    return token


def _refusal(token: JoinToken, now_s: float) -> TokenRejected:
    if token.revoked_s is not None:
        return TokenRejected("token_revoked", f"join token {token.token_id} was revoked", _NEXT_STEP)
    if token.expires_s is not None and token.expires_s <= now_s:
        return TokenRejected("token_expired", f"join token {token.token_id} has expired", _NEXT_STEP)
    return TokenRejected("token_used_up", f"join token {token.token_id} has no uses left", _NEXT_STEP)


def list_tokens(connection: Connection) -> list[JoinToken]:
    """All tokens, oldest first."""
    rows = connection.execute(select(*_RECORD).order_by(_TOKENS.c.created_s, _TOKENS.c.token_id)).all()
    return [JoinToken(*row) for row in rows]


def revoke_token(connection: Connection, token_id: str, now_s: float) -> bool:
    """Revoke a token for good; nodes it has admitted stay. `False` when there is none that is still good."""
    done = connection.execute(
        update(_TOKENS).where(_TOKENS.c.token_id == token_id, _TOKENS.c.revoked_s.is_(None)).values(revoked_s=now_s)
    )
    return done.rowcount == 1
