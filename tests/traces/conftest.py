"""The OpenTelemetry SDK in this process, and the spans that end during a test.

A process has one tracer provider for good. So that other tests are not slowed down by it, its processor
keeps spans only while a test of this folder runs.
"""

import functools
from collections.abc import Iterator
from typing import Any

import pytest


class Spans:
    """What has ended so far."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def named(self, name: str) -> list[Any]:
        """The spans of a name, oldest first."""
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> Any:
        """The only span of a name."""
        (span,) = self.named(name)
        return span


@functools.cache
def _processor() -> Any:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

    class Keeping(SpanProcessor):
        spans: Spans | None = None

        def on_end(self, span: Any) -> None:
            if self.spans is not None:
                self.spans.all.append(span)

    provider, processor = TracerProvider(shutdown_on_exit=False), Keeping()
    provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)
    return processor


@pytest.fixture
def spans() -> Iterator[Spans]:
    """The spans that end during the test."""
    _processor().spans = spans = Spans()
    yield spans
    _processor().spans = None


@pytest.fixture
def tracer(spans: Spans) -> Any:
    """The tracer of a program."""
    from opentelemetry import trace

    return trace.get_tracer("program")
