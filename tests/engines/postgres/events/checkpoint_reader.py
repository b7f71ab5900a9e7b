"""What a reader of events with a checkpoint does: the control of everything here."""

import psycopg


class LastIdReader:
    """Reads all positions above the highest that it saw."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = psycopg.connect(url, autocommit=True)
        self.last = 0
        self.seen: set[str] = set()

    def read(self) -> None:
        query = (
            "SELECT position, event_id::text FROM holdfast.chronicle_events"
            " WHERE position > %s ORDER BY position"
        )
        try:
            found = self._connection.execute(query, [self.last]).fetchall()
        except psycopg.OperationalError:  # the server has restarted
            self._connection.close()
            self._connection = psycopg.connect(self._url, autocommit=True)
            return
        for position, event_id in found:
            self.last = position
            self.seen.add(event_id)

    def close(self) -> None:
        self._connection.close()
