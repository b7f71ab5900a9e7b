"""Whether a store has an owner, as its socket says."""

import http.server
import socketserver
import threading

import pytest

from holdfast.cli.store_access import has_owner
from holdfast.daemon.control_socket import control_path
from holdfast.settings import Settings


class Answering(http.server.BaseHTTPRequestHandler):
    """An owner that answers, and closes the connection if it is ``leaving``."""

    protocol_version = "HTTP/1.1"
    leaving = False

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        if self.leaving:
            self.send_header("connection", "close")
        self.end_headers()

    def log_message(self, *args):
        """Say nothing: a Unix socket has no address to log."""


@pytest.mark.parametrize("leaving", [True, False])
def test_an_owner_that_closes_the_connection_is_leaving(tmp_path, monkeypatch, leaving):
    monkeypatch.setattr(Answering, "leaving", leaving)
    store = tmp_path / "store"
    store.mkdir()
    settings = Settings(store=str(store))
    with socketserver.ThreadingUnixStreamServer(control_path(settings), Answering) as server:
        serving = threading.Thread(target=server.serve_forever, args=[0.01])
        serving.start()
        try:
            assert has_owner(settings) is not leaving
        finally:
            server.shutdown()
            serving.join()
