"""The route at which agents connect: a websocket, message by message."""

from __future__ import annotations

import logging

import msgspec
from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from haibun.server.ports import Control

router = APIRouter()
log = logging.getLogger("haibun.server")

_NOT_UNDERSTOOD = 1007  # of websocket close codes (RFC 6455, section 7.4.1)


class SocketChannel:
    """A websocket as the controller's ``Channel``."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def recv(self) -> bytes:
        """The next message. Raises WebSocketDisconnect when the agent has gone."""
        return await self._socket.receive_bytes()

    async def send(self, frame: bytes) -> None:
        """Send one message."""
        await self._socket.send_bytes(frame)

    async def close(self) -> None:
        """Say goodbye."""
        await self._socket.close()


@router.websocket("/v1/agent")
async def agent(socket: WebSocket) -> None:
    """One agent, for as long as its connection lasts."""
    control: Control = socket.app.state.control
    await socket.accept()
    address = socket.client.host if socket.client is not None else None
    try:
        await control.connect_agent(SocketChannel(socket), address)
    except WebSocketDisconnect:
        pass
    except KeyError:  # what Starlette raises on a text frame where bytes are wanted
        await socket.close(_NOT_UNDERSTOOD, "messages must be binary")
    except msgspec.MsgspecError as e:
        log.warning("an agent at %s sent what is no message: %s", address, e)
        await socket.close(_NOT_UNDERSTOOD, str(e)[:100])
