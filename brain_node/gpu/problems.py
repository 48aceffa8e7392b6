"""Why there is no usable card: the driver's error codes as one line of cause and the next step."""

from collections.abc import Sequence
from typing import Final

from brain_node.gpu.records import Problem

NO_PERMISSION: Final = 4
DRIVER_NOT_LOADED: Final = 9
LIBRARY_NOT_FOUND: Final = 12
VERSION_MISMATCH: Final = 18

_CONTAINER = "in a container, start it with access to the GPUs (for Docker: --gpus all)"


def cannot_start(error: int, text: str, tried: Sequence[str], *, wsl: bool) -> Problem:
    """Why NVML, the driver's own interface, did not start.

    Args:
        error: NVML's error number.
        text: NVML's own words for it.
        tried: The libraries that were tried, in order.
        wsl: Whether this is the Windows Subsystem for Linux, where the driver is the Windows one.
    """
    paths = f" (tried {', '.join(tried)})" if tried else ""
    if error == LIBRARY_NOT_FOUND:
        message = f"the NVIDIA driver's library libnvidia-ml.so.1 was not found{paths}"
        if wsl:
            return Problem(
                "nvml_library_not_found", message, "install the NVIDIA driver in Windows, then run `wsl --shutdown`"
            )
        return Problem("nvml_library_not_found", message, f"install the NVIDIA driver; {_CONTAINER}")
    if error == DRIVER_NOT_LOADED:
        message = f"the NVIDIA driver is installed but not loaded{paths}"
        if wsl:
            step = (
                "install the NVIDIA driver in Windows, not inside WSL (remove Linux driver packages that put their own"
                " libnvidia-ml.so.1 in front), then run `wsl --shutdown`"
            )
            return Problem("nvml_driver_not_loaded", message, step)
        return Problem(
            "nvml_driver_not_loaded", message, f"load it with `sudo modprobe nvidia`, or reboot; {_CONTAINER}"
        )
    if error == VERSION_MISMATCH:
        return Problem(
            "nvml_version_mismatch",
            "the NVIDIA driver was updated, but the kernel still runs the old version",
            "reboot, or stop all GPU programs and reload the module (`sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset"
            " nvidia && sudo modprobe nvidia`)",
        )
    if error == NO_PERMISSION:
        return Problem(
            "nvml_no_permission",
            "this user may not talk to the NVIDIA driver",
            "check the rights of /dev/nvidiactl and /dev/nvidia*",
        )
    return Problem("nvml_failed", f"the NVIDIA driver did not answer: {text} (NVML error {error}){paths}", "reboot")


def no_gpu() -> Problem:
    """The driver runs and lists nothing."""
    return Problem(
        "no_gpu",
        "the NVIDIA driver runs but lists no card",
        f"check that a card is plugged in and powered; {_CONTAINER}",
    )


def gpu_lost(label: str, reason: str) -> Problem:
    """One card is gone; the others go on."""
    return Problem(
        "gpu_lost",
        f"{label} is lost: {reason}",
        "look for Xid in the kernel log (`sudo dmesg | grep -i xid`); a reboot or a reset of the card brings it back",
    )


def gpu_forbidden(label: str) -> Problem:
    """One card is there for others."""
    return Problem(
        "gpu_forbidden",
        f"{label} cannot be used: this user may not talk to it",
        f"check the rights of /dev/nvidia*; {_CONTAINER}",
    )


def gpu_unsupported(label: str, reason: str) -> Problem:
    """One card cannot be used, though it is there."""
    return Problem("gpu_unsupported", f"{label} cannot be used: {reason}", "update the NVIDIA driver")


def mig_without_slices(label: str) -> Problem:
    """A card in MIG mode that nobody has cut yet."""
    return Problem(
        "mig_without_slices",
        f"{label} is in MIG mode but has no slice, so nothing can run on it",
        "make slices (`sudo nvidia-smi mig -cgi … -C`) or switch MIG off (`sudo nvidia-smi -mig 0`)",
    )


def nothing_visible(value: str, stopped_at: str | None) -> Problem:
    """`CUDA_VISIBLE_DEVICES` hides every card."""
    cause = "it is empty" if not value.strip() else f"its entry {stopped_at!r} names no card, or one named before"
    return Problem(
        "visible_devices_none",
        f"CUDA_VISIBLE_DEVICES={value!r} leaves no card to use: {cause}",
        "unset it, or name cards that `brain-node gpus` lists (their UUIDs are the safest names)",
    )


def visible_list_cut(value: str, stopped_at: str) -> Problem:
    """`CUDA_VISIBLE_DEVICES` names something that is not there; CUDA ignores the rest of the list."""
    return Problem(
        "visible_devices_cut",
        f"CUDA_VISIBLE_DEVICES={value!r} ends at {stopped_at!r}, which names no single card; what follows is ignored",
        "correct the list; `brain-node gpus` shows every card and its UUID",
    )


def visible_order_unclear(value: str) -> Problem:
    """An index that may mean another card to other programs."""
    return Problem(
        "visible_devices_order",
        f"CUDA_VISIBLE_DEVICES={value!r} names unlike cards by index; it is read in PCI bus order, as in nvidia-smi",
        "name them by UUID, or set CUDA_DEVICE_ORDER=PCI_BUS_ID so that every program counts alike",
    )


def driver_silent(waited_s: float) -> Problem:
    """The driver has not answered yet; what is shown is old, or nothing."""
    return Problem(
        "nvml_stalled",
        f"the NVIDIA driver has not answered for {waited_s:.0f} s",
        "a card may be failing: look for Xid in the kernel log (`sudo dmesg | grep -i xid`)",
    )
