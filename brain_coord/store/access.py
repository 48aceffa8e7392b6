"""The store's part for who may use the coordinator: API keys and join tokens."""

from functools import partial

from brain_coord.store import api_keys, join_tokens
from brain_coord.store.core import StoreCore
from brain_coord.store.records import ApiKey, JoinToken, Plan


class AccessStore(StoreCore):
    """API keys for requests, join tokens for nodes."""

    async def create_key(self, plan: Plan, label: str | None = None) -> tuple[ApiKey, str]:
        """A new key, and its text: shown now and never again."""
        return await self.write(partial(api_keys.create_key, plan=plan, label=label, now_s=self._clock()))

    async def find_key(self, secret: str) -> ApiKey | None:
        """The good key with this text, from memory when it was seen lately; `None` for an unknown or revoked one."""
        return await self.keys.find(secret)

    async def list_keys(self) -> list[ApiKey]:
        """All keys, oldest first."""
        return await self.read(api_keys.list_keys)

    async def revoke_key(self, key_id: str) -> bool:
        """Revoke a key for good, at once in this process; `False` when there is none that is still good."""
        done = await self.write(partial(api_keys.revoke_key, key_id=key_id, now_s=self._clock()))
        self.keys.forget()
        return done

    async def create_token(
        self, *, operator: bool = False, uses: int | None = None, ttl_s: float | None = None, label: str | None = None
    ) -> tuple[JoinToken, str]:
        """A new join token, and its text: shown now and never again."""
        return await self.write(
            partial(
                join_tokens.create_token,
                now_s=self._clock(),
                operator=operator,
                uses=uses,
                ttl_s=ttl_s,
                label=label,
            )
        )

    async def redeem_token(self, secret: str, node_id: str) -> JoinToken:
        """Admit a node by a token, using it up by one unless it has admitted this node before.

        Raises:
            TokenRejected: it does not admit the node.
        """
        admitted = await self.write(
            partial(join_tokens.redeem_token, secret=secret, node_id=node_id, now_s=self._clock())
        )
        assert isinstance(admitted, JoinToken)
        return admitted

    async def list_tokens(self) -> list[JoinToken]:
        """All tokens, oldest first."""
        return await self.read(join_tokens.list_tokens)

    async def revoke_token(self, token_id: str) -> bool:
        """Revoke a token for good; nodes it has admitted stay."""
        return await self.write(partial(join_tokens.revoke_token, token_id=token_id, now_s=self._clock()))
