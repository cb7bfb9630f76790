"""A TCP proxy of ours in front of a broker: the network between it and its clients, to be cut and healed.

Rule: it moves bytes and looks at none. The broker tells clients the proxy's address, so that all of them go through it;
it reaches itself past the proxy, and so does who reads what is really in it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from enum import Enum
from typing import Any

from keyedwm.testing.local import LocalBroker, free_ports, local_broker

LOOPBACK = "127.0.0.1"
_CHUNK_BYTES = 1 << 16
_AT_ONCE = struct.pack("ii", 1, 0)  # closing sends a reset, not the rest


class Link(Enum):
    """How the network is: SILENT passes nothing either way, MUTE passes requests and no answers (both half-open)."""

    OPEN = "open"
    REFUSED = "refused"
    SILENT = "silent"
    MUTE = "mute"


class Proxy:
    """Listens on one port and passes on to another, in a thread of its own; starts open."""

    def __init__(self, port: int, target_port: int) -> None:
        self.bootstrap = f"{LOOPBACK}:{port}"
        self._port, self._target_port = port, target_port
        self._link = Link.OPEN
        self._joined: set[asyncio.Task[None]] = set()
        self._sockets: set[asyncio.StreamWriter] = set()
        self._requests, self._answers = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._do(self._listening())

    def set(self, link: Link) -> None:
        """Change the network; REFUSED resets what is connected and every new connection."""
        self._do(self._set(link))

    def reset(self) -> None:
        """Break every connection, as a router does that has forgotten them."""
        self._do(self._reset())

    def close(self) -> None:
        """Break every connection and stop."""
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, step: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()

    async def _listening(self) -> asyncio.Server:
        self._requests.set()
        self._answers.set()
        return await asyncio.start_server(self._accept, LOOPBACK, self._port)

    async def _set(self, link: Link) -> None:
        self._link = link
        for direction, silent in ((self._requests, {Link.SILENT}), (self._answers, {Link.SILENT, Link.MUTE})):
            if link in silent:
                direction.clear()
            else:
                direction.set()
        if link is Link.REFUSED:
            await self._reset()

    async def _reset(self) -> None:
        for writer in list(self._sockets):
            _break(writer)
        for task in list(self._joined):
            task.cancel()
        await asyncio.gather(*self._joined, return_exceptions=True)

    async def _end(self) -> None:
        self._server.close()
        await self._reset()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._join(reader, writer))
        self._joined.add(task)
        task.add_done_callback(self._joined.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on between a client and the broker until either closes."""
        if self._link is Link.REFUSED:
            _break(writer)
            return
        try:
            there, there_writer = await asyncio.open_connection(LOOPBACK, self._target_port)
        except OSError:
            _break(writer)
            return
        ends = {writer, there_writer}
        self._sockets |= ends
        pumps = {
            asyncio.ensure_future(_pump(reader, there_writer, self._requests)),
            asyncio.ensure_future(_pump(there, writer, self._answers)),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in ends:
                _break(end)
            self._sockets -= ends


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_pass: asyncio.Event) -> None:
    """One direction; the end of a connection passes no sooner than its bytes."""
    with suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            await may_pass.wait()
            writer.write(data)
            await writer.drain()
    await may_pass.wait()


def _break(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    writer.transport.abort()


@contextmanager
def broker_behind_proxy(extra: Mapping[str, str] | None = None) -> Iterator[tuple[LocalBroker, Proxy]]:
    """A local broker and the proxy that its clients go through; the broker's own `bootstrap` leads past the proxy."""
    direct, behind, advertised, controller = free_ports(4)
    properties = {
        "listeners": f"DIRECT://{LOOPBACK}:{direct},PLAINTEXT://{LOOPBACK}:{behind},CONTROLLER://{LOOPBACK}:{controller}",
        "advertised.listeners": f"DIRECT://{LOOPBACK}:{direct},PLAINTEXT://{LOOPBACK}:{advertised}",
        "listener.security.protocol.map": "DIRECT:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "DIRECT",
        "controller.quorum.voters": f"1@localhost:{controller}",
    }
    with (
        closing(Proxy(advertised, behind)) as proxy,
        local_broker(port=direct, extra={**properties, **(extra or {})}) as broker,
    ):
        yield broker, proxy
