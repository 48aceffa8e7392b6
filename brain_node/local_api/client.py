"""The command line's side of the local API; light, so that `status` answers at once."""

import http.client
from pathlib import Path
from typing import Any, Final

import orjson

from brain_node.contract.private_socket import connect_private

SOCKET_NAME: Final = "agent.sock"
CLIENT_TIMEOUT_S: Final = 5.0


class NoAgentError(Exception):
    """No agent runs with this data folder."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, folder: Path) -> None:
        super().__init__("localhost", timeout=CLIENT_TIMEOUT_S)
        self._folder = folder

    def connect(self) -> None:
        self.sock = connect_private(self._folder, SOCKET_NAME, CLIENT_TIMEOUT_S)


def ask(data_dir: Path, path: str, method: str = "GET") -> dict[str, Any]:
    """One answer from the agent that runs with a data folder.

    Raises:
        NoAgentError: none runs.
        OSError: it does not answer.
    """
    connection = _UnixConnection(data_dir)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
        if response.status != http.HTTPStatus.OK:
            raise OSError(f"the agent answers with HTTP {response.status}")
        answer: dict[str, Any] = orjson.loads(body)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        raise NoAgentError(f"no agent runs with the data folder {data_dir}") from None
    except http.client.HTTPException as error:
        raise OSError(f"the agent's answer broke off ({type(error).__name__})") from None
    finally:
        connection.close()
    return answer
