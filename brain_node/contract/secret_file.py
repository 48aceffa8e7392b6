"""Files that hold secrets: 0600 from the first instant, whole or not there."""

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import Final

_OTHERS: Final = 0o077


def write_private(path: Path, text: str, *, for_service: bool = False) -> None:
    """Write a secret file with mode 0600 from its first instant, all or nothing, in a directory with mode 0700.

    Args:
        path: where to.
        text: what.
        for_service: written by root, it belongs to the folder's owner, who has to read it: a service of another user.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A name that no other writer has: two threads may write at once, and in a container a writer that was killed
    # had the very process number that the next one has.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            if for_service:
                give_to_service(file.fileno(), path.parent)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def give_to_service(descriptor: int, folder: Path) -> None:
    """Let a file that root made belong to whom its folder belongs to."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def read_private(path: Path) -> tuple[str, bool]:
    """The text of a secret file, and whether others could read it and it had to be tightened.

    What is no file with a text in it was named by mistake, and is left as it is: a folder, a program, a device. So is a
    file that is not ours to change, such as a secret that a container platform mounts.

    Raises:
        OSError: the file is missing or not readable.
        UnicodeDecodeError: it is not text.
    """
    text = path.read_text()
    mode = path.stat().st_mode
    loose = stat.S_ISREG(mode) and bool(mode & _OTHERS)
    if loose:
        try:
            path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
        except PermissionError:
            loose = False
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            loose = False
    return text, loose
