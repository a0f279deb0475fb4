"""One transcript file -> sightings of requests and the events around them. No database, no prices, no prompt text."""

from analyzer.transcript.parser import ParsedFile
from analyzer.transcript.reader import Continuation, read_transcript
from analyzer.transcript.rows import Agent, Event, Iteration, Sighting

__all__ = ["Agent", "Continuation", "Event", "Iteration", "ParsedFile", "Sighting", "read_transcript"]
