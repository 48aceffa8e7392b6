"""Files that hold secrets: 0600 from the first instant, whole or not there."""

import errno
import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write a secret file with mode 0600 from its first instant, all or nothing, in a directory with mode 0700."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_private(path: Path) -> tuple[str, bool]:
    """The text of a secret file, and whether its permissions were too loose and had to be tightened to 0600.

    A file that is not ours to change, such as a secret that a container platform mounts, is read as it is.

    Raises:
        OSError: the file is missing or not readable.
        UnicodeDecodeError: it is not text.
    """
    loose = bool(path.stat().st_mode & 0o077)
    if loose:
        try:
            path.chmod(0o600)
        except PermissionError:
            loose = False
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            loose = False
    return path.read_text(), loose
