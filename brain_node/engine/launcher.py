"""The first moments of an engine process: waits for the word to go, ties itself to the agent, becomes the engine.

Run as a script by the agent's interpreter; imports nothing of the agent. Its words: descriptor to read the word from,
the agent's pid, `--`, and the engine's command line.

Waiting means that no engine exists before its pid is on record, so an agent killed at any moment leaves none that its
next start cannot find. The tie: when the agent dies, the kernel sends the engine's root SIGTERM.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_OOM_SCORE = "300"  # under memory pressure the kernel shall take an engine, not the agent that restarts it


def main(words: list[str]) -> int:
    """Wait, tie, and become the program after `--`."""
    go, agent, command = int(words[0]), int(words[1]), words[3:]
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != agent or os.read(go, 1) != b"g":
        return 125
    os.close(go)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
            file.write(_OOM_SCORE)
    except OSError:
        pass
    try:
        os.execv(command[0], command)  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"error: cannot run {command[0]}: {error.strerror}\n")
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
