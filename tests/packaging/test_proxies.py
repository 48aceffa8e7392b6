"""The shipped proxy configurations in front of a real coordinator: nodes link through them and streams leave at once."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.certificates import PrivateCa
from tests.support.coordinator import CoordinatorProcess
from tests.support.ports import free_port
from tests.support.processes import Program
from tests.support.raw_node import RawJob, RawNode, answer, chunk, usage

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin") or "nginx"
NGINX_CONF = Path("packaging/nginx/brain.conf")
CADDYFILE = Path("packaging/caddy/Caddyfile")


def nginx_frame(folder: Path, server: str) -> Path:
    """A whole nginx configuration around a server block, with nothing outside the folder."""
    temporary = "\n".join(
        f"    {kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log stderr notice;\n"
        f"events {{ worker_connections 256; }}\nhttp {{\n    access_log off;\n{temporary}\n{server}\n}}\n"
    )
    return file


@contextmanager
def nginx(coordinator: CoordinatorProcess, folder: Path) -> Iterator[str]:
    port = free_port()
    server = (
        NGINX_CONF.read_text()
        .replace("127.0.0.1:8470", f"127.0.0.1:{coordinator.port}")
        .replace("listen 443 ssl http2;", f"listen 127.0.0.1:{port};")
        .replace("    listen [::]:443 ssl http2;\n", "")
    )
    server = "\n".join(line for line in server.splitlines() if "ssl_certificate" not in line)
    file = nginx_frame(folder, server)
    with Program([NGINX, "-p", str(folder), "-c", str(file)]) as program:
        program.wait_for("getrlimit")
        yield f"http://127.0.0.1:{port}"


@contextmanager
def caddy(coordinator: CoordinatorProcess, folder: Path) -> Iterator[str]:
    port = free_port()
    text = (
        CADDYFILE.read_text()
        .replace("127.0.0.1:8470", f"127.0.0.1:{coordinator.port}")
        .replace("coordinator.example {", f"http://127.0.0.1:{port} {{")
    )
    file = folder / "Caddyfile"
    file.write_text("{\n\tadmin off\n}\n" + text)
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with Program(["caddy", "run", "--config", str(file), "--adapter", "caddyfile"], env=home) as program:
        program.wait_for("serving initial configuration")
        yield f"http://127.0.0.1:{port}"


def test_nginx_accepts_the_file_as_it_is_shipped(tmp_path: Path):
    PrivateCa(tmp_path).server("coordinator.example")
    shipped = NGINX_CONF.read_text()
    for name in ("fullchain.pem", "privkey.pem"):
        shipped = shipped.replace(f"/etc/ssl/brain/{name}", str(tmp_path / "server.pem"))
    file = nginx_frame(tmp_path, shipped)
    checked = subprocess.run(
        [NGINX, "-t", "-p", str(tmp_path), "-c", str(file)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.slow
@pytest.mark.parametrize("proxy", [nginx, caddy])
async def test_a_node_links_and_a_stream_leaves_event_by_event(tmp_path: Path, proxy):
    more = asyncio.Event()
    cancelled = asyncio.Event()

    async def script(job: RawJob) -> None:
        if job.request.get("ignore_eos"):
            await answer(job)
            return
        await job.accept()
        await job.head()
        await job.event(chunk("first"))
        waiting = [asyncio.ensure_future(each.wait()) for each in (more, job.cancelled)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()
        if job.cancelled.is_set():
            cancelled.set()
            await job.end(ok=False, cause="cancelled")
            return
        await job.event(chunk("second"))
        await job.event(chunk(finish="stop"))
        await job.event(usage(2))
        await job.send(b"data: [DONE]\n\n")
        await job.end()

    def words(line: str) -> str:
        if not line.startswith("data: {"):
            return ""
        return "".join(each["delta"].get("content") or "" for each in json.loads(line[6:])["choices"])

    with CoordinatorProcess(tmp_path / "coord", "--open-join") as coordinator, proxy(coordinator, tmp_path) as url:
        key = coordinator.key()
        body = {"model": "brain/mock", "messages": [{"role": "user", "content": "x" * 2_000_000}], "stream": True}
        async with (
            RawNode(url, script=script) as node,
            httpx.AsyncClient(
                base_url=url, trust_env=False, timeout=60, headers={"authorization": f"Bearer {key}"}
            ) as client,
        ):
            await asyncio.to_thread(coordinator.wait_for_node, node.node_id, basis="coordinator-timed", state="ONLINE")
            async with client.stream("POST", "/v1/chat/completions", json=body) as stream:
                lines = stream.aiter_lines()
                async with asyncio.timeout(30):
                    while words(await anext(lines)) != "first":
                        pass
                more.set()  # nothing after the first event existed while the first one was on its way
                rest = [line async for line in lines]
            assert "second" in "".join(words(line) for line in rest)
            assert rest[-2:] == ["data: [DONE]", ""] or "data: [DONE]" in rest

            more.clear()
            async with client.stream("POST", "/v1/chat/completions", json=body) as stream:
                lines = stream.aiter_lines()
                async with asyncio.timeout(30):
                    while words(await anext(lines)) != "first":
                        pass
            async with asyncio.timeout(30):
                await cancelled.wait()  # a client that leaves the proxy ends the engine's work

            async with client.stream("GET", "/network/events") as stream:
                async with asyncio.timeout(30):
                    async for line in stream.aiter_lines():
                        if line.startswith("data: "):
                            break
            assert (await client.get("/metrics")).status_code == 200  # from this machine
            assert (await client.get("/network")).status_code == 200
