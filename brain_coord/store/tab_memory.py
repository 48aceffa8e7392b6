"""The store's part for what is remembered of browser tabs between their sessions."""

from collections.abc import Sequence
from functools import partial

from brain_coord.store import tabs
from brain_coord.store.core import StoreCore
from brain_coord.store.records import TabRecord


class TabStore(StoreCore):
    """Tabs, what they were caught at, and the operator's word about them. Their outcomes are kept with those of nodes."""

    async def save_tabs(self, seen: Sequence[TabRecord]) -> None:
        """Remember tabs as they are now, many at once."""
        await self.write(partial(tabs.save_tabs, seen=seen))

    async def get_tab(self, tab_id: str) -> TabRecord | None:
        """One tab."""
        return await self.read(partial(tabs.get_tab, tab_id=tab_id))

    async def banned_tabs(self) -> dict[str, str]:
        """Every banned tab, with the reason."""
        return await self.read(tabs.banned_tabs)

    async def ban_tab(self, tab_id: str, reason: str | None) -> None:
        """Ban a tab for a reason, or lift its ban with `None`."""
        await self.write(partial(tabs.ban_tab, tab_id=tab_id, reason=reason, now_s=self._clock()))
