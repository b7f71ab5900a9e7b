"""Runs jobs: slots, executors, heartbeats, outcomes, schedules and periodic loops."""
