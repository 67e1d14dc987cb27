"""Requests wait here: class, then earliest deadline; bounded, and full means refused."""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass

from gateway.core.clock import Clock
from gateway.core.decision import DecisionRequest


@dataclass(frozen=True, slots=True)
class AdmissionStatistics:
    """Counters since start."""

    waiting: int
    peak_waiting: int
    admitted: int
    refused_full: int
    expired: int


class DecisionQueue:
    """One order for everybody: class, then deadline, then arrival."""

    def __init__(self, capacity: int, clock: Clock) -> None:
        self._capacity, self._clock = capacity, clock
        self._heap: list[tuple[int, float, int, DecisionRequest]] = []
        self._arrivals = self._peak = self._refused = self._expired = 0
        self._wake = asyncio.Event()

    def put(self, request: DecisionRequest) -> bool:
        """Take a request, or False when full: the newest is the one refused."""
        if len(self._heap) >= self._capacity:
            self._refused += 1
            return False
        self._arrivals += 1
        entry = (int(request.request_class), request.deadline.at, self._arrivals, request)
        heapq.heappush(self._heap, entry)
        self._peak = max(self._peak, len(self._heap))
        self._wake.set()
        return True

    async def get(self) -> DecisionRequest:
        """The next request by class and deadline; expired ones come out too, and are counted."""
        while not self._heap:
            self._wake.clear()
            await self._wake.wait()
        request = heapq.heappop(self._heap)[3]
        if request.deadline.passed(self._clock):
            self._expired += 1
        return request

    def statistics(self) -> AdmissionStatistics:
        """Counters since start."""
        return AdmissionStatistics(len(self._heap), self._peak, self._arrivals, self._refused, self._expired)
