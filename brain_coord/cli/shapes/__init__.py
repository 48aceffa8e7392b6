"""What every `--json` of this program prints, as records from which the JSON Schemas are made.

Units are in the names; what is not known is null, never 0.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from brain_coord.cli.shapes import fleet, receipts, routing, status, store, tabs

_ACTED = fleet.NodeChanged | fleet.NodeShownRemembered

SHAPES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "check-config": receipts.ConfigGood | receipts.ConfigBad,
        "route": routing.Decided | list[routing.Decided] | routing.Replayed | list[routing.Replayed],
        "status": status.Status,
        "targets": list[fleet.Target],
        "top": fleet.Top,
        "ledger": list[receipts.LedgerRow],
        "key create": store.KeyMade,
        "key list": list[store.Key],
        "key revoke": store.Revoked,
        "operator create": store.OperatorSecret,
        "operator revoke": store.OperatorRevoked,
        "token create": store.TokenMade,
        "token list": list[store.Token],
        "token revoke": store.Revoked,
        "nodes": list[fleet.Node] | list[fleet.NodeRemembered],
        "nodes show": fleet.NodeShown | fleet.NodeShownRemembered,
        "nodes ban": _ACTED,
        "nodes unban": _ACTED,
        "nodes trust": _ACTED,
        "nodes untrust": _ACTED,
        "nodes drain": _ACTED,
        "nodes undrain": _ACTED,
        "nodes addresses": list[fleet.Address],
        "receipts prune": receipts.Pruned,
        "receipts verify": receipts.Verified,
        "receipts export": list[receipts.Receipt],
        "receipts show": receipts.Receipt,
        "keys rotate": store.SignerEntry,
        "keys new-chain": store.SignerEntry,
        "keys list": list[store.KeyHistory],
        "db check": store.SchemaChecked,
        "db upgrade": store.SchemaUpgraded,
        "db backup": store.BackedUp,
        "tabs": list[tabs.Tab | tabs.TabRemembered],
        "tabs ban": tabs.Tab | tabs.TabRemembered,
        "tabs unban": tabs.Tab | tabs.TabRemembered,
        "browser-model add": store.BrowserModel,
        "browser-model list": list[store.BrowserModel],
        "browser-model remove": store.BrowserModelRemoved,
    }
)
"""By command, without the program's name."""
