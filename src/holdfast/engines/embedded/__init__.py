"""Engines that keep their state in this process: decide, log, apply, answer when durable."""
