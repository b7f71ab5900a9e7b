"""For each setting a value that is not its default, as it is written at every door."""

from holdfast.settings import Settings

FIELDS = Settings.__struct_fields__

SAMPLES: dict[str, tuple[str, object]] = {
    "store": ("./elsewhere", "./elsewhere"),
    "schema": ("work", "work"),
    "max_connections": ("3", 3),
    "statement_timeout_seconds": ("5s", 5.0),
    "wake": ("poll", "poll"),
    "wal_path": ("./q/wal.log", "./q/wal.log"),
    "snapshot_path": ("./ssd/s.json", "./ssd/s.json"),
    "worker_count": ("3", 3),
    "processes": ("2", 2),
    "queues": ("mail:8,slow", "mail:8,slow"),
    "worker_id": ("c1", "c1"),
    "default_task": ("shop.mail", "shop.mail"),
    "batch_size": ("50", 50),
    "poll_interval_seconds": ("200ms", 0.2),
    "task_timeout_seconds": ("1m30s", 90.0),
    "lease_seconds": ("45", 45.0),
    "max_processing_seconds": ("2h", 7_200.0),
    "reclaim_interval_seconds": ("0.5", 0.5),
    "max_attempts": ("7", 7),
    "base_backoff_seconds": ("250ms", 0.25),
    "max_backoff_seconds": ("1m", 60.0),
    "remember_seconds": ("1d", 86_400.0),
    "snapshot_interval_seconds": ("10s", 10.0),
    "sync": ("interval", "interval"),
    "history": ("anew", "anew"),
    "drain_seconds": ("0", 0.0),
    "run_seconds": ("2", 2.0),
    "stall_seconds": ("off", None),
    "event_loop": ("uvloop", "uvloop"),
    "memory_limit_bytes": ("268435456", 268_435_456),
    "metrics_host": ("::1", "::1"),
    "metrics_port": ("9110", 9_110),
    "log_level": ("debug", "debug"),
    "log_format": ("json", "json"),
    "flags": ("auto_replay=on,fast=off", {"auto_replay": True, "fast": False}),
}
