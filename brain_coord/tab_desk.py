"""Tabs for people: the pages' rows, and what the operator's commands ask of tabs while a coordinator runs."""

import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from brain_coord.admin import AdminError, Operation
from brain_coord.browser.tab import Tab
from brain_coord.browser.tab_memory import TabMemory
from brain_coord.browser.tab_row import TabPage, TabRow, tab_page, tab_rows
from brain_coord.node_desk import DEFAULT_BAN
from brain_coord.store.errors import StoreUnavailable

_ID: Final = re.compile(r"N-[0-9A-F]{16}")


@dataclass(frozen=True, slots=True)
class TabDesk:
    """Over the tabs of one coordinator; those that were here before it started are recalled when they are named."""

    memory: TabMemory

    def rows(self) -> list[TabRow]:
        """Tabs as /network lists them."""
        return tab_rows(self.memory.tabs)

    async def page(self, tab_id: str) -> TabPage | None:
        """One tab with its score, term by term; `None` for one that is not known.

        Raises:
            StoreUnavailable: it is not known here, and the store is away.
        """
        tab = await self._find(tab_id)
        return None if tab is None else tab_page(tab)

    async def ban(self, tab_id: str, reason: str) -> bool:
        """Ban a tab, with an empty reason for the usual one; `False` for one that is not known.

        Raises:
            StoreUnavailable: nothing was changed.
        """
        return await self._set(tab_id, reason[:200] or DEFAULT_BAN)

    async def unban(self, tab_id: str) -> bool:
        """Lift a ban; `False` for a tab that is not known.

        Raises:
            StoreUnavailable: nothing was changed.
        """
        return await self._set(tab_id, None)

    async def _set(self, tab_id: str, reason: str | None) -> bool:
        if await self._find(tab_id) is None:
            return False
        await self.memory.ban(tab_id, reason)
        return True

    async def _find(self, tab_id: str) -> Tab | None:
        known = self.memory.tabs.get(tab_id)
        if known is not None or not _ID.fullmatch(tab_id):
            return known
        if await self.memory.archive.get_tab(tab_id) is None:
            return None
        return await self.memory.recall(tab_id)

    def operations(self) -> dict[str, Operation]:
        """By their names on the administration socket."""
        return {"tabs": self._list, "tab_ban": self._on_tab(self._ban), "tab_unban": self._on_tab(self._unban)}

    async def _list(self, _: dict[str, Any]) -> list[dict[str, Any]]:
        now, now_s = monotonic(), time.time()
        return [tab.view(now, now_s) for tab in sorted(self.memory.tabs, key=lambda tab: tab.tab_id)]

    def _on_tab(self, act: Callable[[str, dict[str, Any]], Awaitable[bool]]) -> Operation:
        async def operation(request: dict[str, Any]) -> dict[str, Any]:
            tab_id = str(request.get("tab_id"))
            try:
                done = await act(tab_id, request)
            except StoreUnavailable as error:
                raise AdminError(f"{error.message}; nothing was changed") from None
            tab = self.memory.tabs.get(tab_id)
            if not done or tab is None:
                raise AdminError(f"no tab {tab_id} has lent here")
            return tab.view(monotonic(), time.time())

        return operation

    async def _ban(self, tab_id: str, request: dict[str, Any]) -> bool:
        return await self.ban(tab_id, str(request.get("reason") or ""))

    async def _unban(self, tab_id: str, _: dict[str, Any]) -> bool:
        return await self.unban(tab_id)
