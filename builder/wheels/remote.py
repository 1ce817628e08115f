"""A wheel's table of contents over HTTP: a few range requests instead of the whole file."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx

from builder.errors import OutsideFailed
from builder.wheels.transport import Temporary, check_status, retrying, transport_fault

__all__ = ["RemoteFile", "unpacked_size"]

_BLOCK = 1 << 16


class RemoteFile(io.RawIOBase):
    """A seekable file behind a URL whose server answers range requests; blocks of 64 KiB are fetched once."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        super().__init__()
        self._client = client
        self._url = url
        self._position = 0
        self._blocks: dict[int, bytes] = {}
        self.size = retrying(self._length)

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; nothing is fetched."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(origin + offset, 0)
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill the buffer from the current position, as far as the file goes."""
        want = min(len(buffer), max(self.size - self._position, 0))
        got = 0
        while got < want:
            number, skip = divmod(self._position, _BLOCK)
            piece = self._block(number)[skip : skip + want - got]
            if not piece:
                break
            buffer[got : got + len(piece)] = piece
            got += len(piece)
            self._position += len(piece)
        return got

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            start = number * _BLOCK
            end = min(start + _BLOCK, self.size) - 1
            self._blocks[number] = retrying(lambda: self._range(start, end))
        return self._blocks[number]

    def _range(self, start: int, end: int) -> bytes:
        headers = {"Range": f"bytes={start}-{end}", "Accept-Encoding": "identity"}
        try:
            with self._client.stream("GET", self._url, headers=headers) as response:
                check_status(response)
                if response.status_code != 206:
                    raise OutsideFailed(f"{self._url} cannot be read in parts", why="its server ignores ranges")
                return response.read()
        except httpx.TransportError as error:
            raise Temporary(transport_fault(self._url, error)) from error

    def _length(self) -> int:
        try:
            response = self._client.head(self._url, headers={"Accept-Encoding": "identity"})
        except httpx.TransportError as error:
            raise Temporary(transport_fault(self._url, error)) from error
        check_status(response)
        length = response.headers.get("Content-Length", "")
        if not length.isdigit():
            raise OutsideFailed(f"{self._url} has no length", why="its server does not say")
        return int(length)


def unpacked_size(client: httpx.Client, url: str) -> int:
    """Bytes a wheel takes when installed: the sum of its members' lengths, from the archive's directory.

    Raises `OutsideFailed` when the server does not answer ranges, or the file is no zip archive.
    """
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            with zipfile.ZipFile(Path(unquote(parts.path))) as archive:
                return sum(info.file_size for info in archive.infolist())
        with RemoteFile(client, url) as file, zipfile.ZipFile(file) as archive:
            return sum(info.file_size for info in archive.infolist())
    except (OSError, zipfile.BadZipFile) as error:
        raise OutsideFailed(f"cannot read the contents of {url}", why=str(error)) from error
