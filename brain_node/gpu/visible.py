"""Pure: which cards `CUDA_VISIBLE_DEVICES` lets a process use, by CUDA's own rules.

- Not set: all. Set but empty: none.
- Entries are an index, a `GPU-` or `MIG-` UUID, or the beginning of one that fits exactly one device.
- The order of the entries is the order of the devices.
- The list ends at the first entry that names nothing: `0,9,1` on a machine with two cards shows card 0 alone.
- All entries are of the first one's kind; an entry of another kind ends the list too.
- A device named twice makes CUDA see none.
- An index on a card that is cut into MIG slices means its first slice. A process can use one slice only; as every engine
  is a process of its own and gets one of them, all slices that the list names are kept.

Indices count in PCI bus order, which is NVML's order and the one this agent sets for every engine it starts
(`CUDA_DEVICE_ORDER=PCI_BUS_ID`). CUDA's own default counts the fastest card first, so on a machine with unlike cards an
index may mean another card to other programs; `ambiguous_order()` tells when to say so.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """What the rules need to know of one card."""

    uuid: str | None
    """`None` for a card that cannot be asked; it keeps its index."""
    slices: tuple[str, ...] = ()
    """UUIDs of its MIG slices; with any, the card itself cannot be used."""


@dataclass(frozen=True, slots=True)
class Visible:
    """The devices that may be used, in order."""

    uuids: tuple[str, ...]
    stopped_at: str | None = None
    """The entry that ended the list, when one did."""
    by_index: bool = False
    """Whether the list names devices by index."""


def visible_devices(devices: Sequence[Device], value: str | None) -> Visible:
    """Apply `CUDA_VISIBLE_DEVICES` to the machine's devices.

    Args:
        devices: All cards in NVML order.
        value: The variable's value; `None` when it is not set.
    """
    if value is None:
        return Visible(tuple(uuid for device in devices for uuid in _usable(device)))
    entries = [entry.strip() for entry in value.split(",")]
    kind = _kind(entries[0])
    found: list[str] = []
    for entry in entries:
        uuid = _resolve(devices, entry) if _kind(entry) == kind else None
        if uuid is None:
            return Visible(tuple(found), stopped_at=entry, by_index=kind == "index")
        if uuid in found:
            return Visible((), stopped_at=entry, by_index=kind == "index")
        found.append(uuid)
    return Visible(tuple(found), by_index=kind == "index")


def ambiguous_order(visible: Visible, names: Sequence[str | None], device_order: str | None) -> bool:
    """Whether an index in the list may mean another card to a program that uses CUDA's default order."""
    return visible.by_index and device_order != "PCI_BUS_ID" and len(set(names)) > 1


def _kind(entry: str) -> str:
    if re.match(r"\d", entry):
        return "index"
    return entry[:4] if entry.startswith(("GPU-", "MIG-")) else "nothing"


def _resolve(devices: Sequence[Device], entry: str) -> str | None:
    # CUDA reads the leading digits and ignores what follows them.
    digits = re.match(r"\d+", entry)
    if digits:
        index = int(digits[0])
        usable = _usable(devices[index]) if index < len(devices) else ()
        return usable[0] if usable else None
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    fitting = [uuid for device in devices for uuid in _usable(device) if uuid.startswith(entry)]
    return fitting[0] if len(fitting) == 1 else None


def _usable(device: Device) -> tuple[str, ...]:
    return device.slices or ((device.uuid,) if device.uuid else ())
