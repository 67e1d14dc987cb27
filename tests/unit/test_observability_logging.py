from __future__ import annotations

import io
import json
import logging
import os
import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
import structlog

from gateway.observability.logging import (
    configure_logging,
    journal_send,
    to_journal,
    without_secrets,
)

# Bound at import, before anything is configured: as every module of the gateway does.
early = structlog.get_logger().bind(component="early")


@pytest.fixture(autouse=True)
def _structlog_as_it_was() -> Iterator[None]:
    processors = cast("list[Any]", structlog.get_config()["processors"])
    kept, handlers = list(processors), list(logging.getLogger().handlers)
    yield
    processors[:] = kept
    logging.getLogger().handlers = handlers
    structlog.contextvars.clear_contextvars()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_logger_bound_before_configuration_obeys_it() -> None:
    out = io.StringIO()
    assert configure_logging("auto", stream=out) == "json"

    early.info("setpoint_written", tag="FIC-101.SP", value=42.0)

    (line,) = lines(out)
    assert line["event"] == "setpoint_written"
    assert (line["component"], line["level"], line["value"]) == ("early", "info", 42.0)
    assert line["at"].endswith("Z")


def test_lines_below_the_level_are_dropped_and_reconfiguring_takes_effect() -> None:
    out = io.StringIO()
    configure_logging("json", "warning", stream=out)
    early.info("poll_done")
    early.warning("poll_late")
    configure_logging("json", "debug", stream=out)
    early.debug("poll_planned")

    assert [line["event"] for line in lines(out)] == ["poll_late", "poll_planned"]


def test_the_decision_id_of_the_context_is_in_every_line() -> None:
    out = io.StringIO()
    configure_logging("json", stream=out)
    structlog.contextvars.bind_contextvars(decision="d-7f3a")

    early.info("verdict_reached")

    assert lines(out)[0]["decision"] == "d-7f3a"


def test_an_exception_becomes_text_in_one_line() -> None:
    out = io.StringIO()
    configure_logging("json", stream=out)
    try:
        int("too hot")
    except ValueError:
        early.exception("check_failed")

    (line,) = lines(out)
    assert "too hot" in line["exception"]
    assert line["level"] == "error"


def test_secrets_are_masked_at_any_depth_and_in_urls() -> None:
    event = {
        "event": "link_opened",
        "password": "hunter2",
        "mqtt": {"client_token": "abc", "servers": [{"private_key_pem": "abc", "port": 1}]},
        "endpoint": "mqtt://ada:hunter2@192.0.2.1:1883",
        "tokens_per_s": 120,
    }

    masked = without_secrets(None, "info", dict(event))

    assert masked == {
        "event": "link_opened",
        "password": "***",
        "mqtt": {"client_token": "***", "servers": [{"private_key_pem": "***", "port": 1}]},
        "endpoint": "mqtt://ada:***@192.0.2.1:1883",
        "tokens_per_s": 120,
    }


def test_lines_of_libraries_join_the_chain_from_warning_upwards() -> None:
    out = io.StringIO()
    configure_logging("json", stream=out)
    configure_logging("json", stream=out)  # twice must not write twice

    logging.getLogger("asyncua.server").warning("session %s lost", 7)
    logging.getLogger("asyncua.server").info("nobody needs this")

    assert [(line["component"], line["text"]) for line in lines(out)] == [
        ("asyncua.server", "session 7 lost"),
    ]


def test_a_reader_that_went_away_does_not_stop_the_gateway() -> None:
    out = io.StringIO()
    configure_logging("json", stream=out)
    out.close()

    early.info("poll_done")


def test_the_console_style_is_for_people() -> None:
    out = io.StringIO()
    assert configure_logging("console", stream=out) == "console"

    early.info("setpoint_written", tag="FIC-101.SP")

    assert re.match(r"20\d\d-\d\d-\d\dT[0-9:.]+Z \[info ", out.getvalue())  # when, before all else
    assert "setpoint_written" in out.getvalue()
    assert "tag=FIC-101.SP" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_journald_gets_one_field_per_fact() -> None:
    sent: list[tuple[str, dict[str, object]]] = []

    def send(MESSAGE: str, **fields: object) -> None:  # noqa: N803  # systemd-python's name
        sent.append((MESSAGE, fields))

    event = {"event": "setpoint_written", "level": "warning", "tag": "FIC-101.SP", "po-int": 3}
    with pytest.raises(structlog.DropEvent):
        to_journal(send)(None, "warning", event)

    message, fields = sent[0]
    assert message == "setpoint_written tag=FIC-101.SP po-int=3"
    assert fields == {
        "PRIORITY": 4,
        "O3_EVENT": "setpoint_written",
        "O3_TAG": "FIC-101.SP",
        "O3_PO_INT": "3",
    }


def test_without_systemd_python_journald_style_falls_back_to_json() -> None:
    if journal_send() is not None:
        pytest.skip("systemd-python is installed here")
    assert configure_logging("journald", stream=io.StringIO()) == "json"


def test_json_lines_become_fields_where_the_stream_is_the_journal() -> None:
    sent: list[str] = []

    def send(MESSAGE: str, **_: object) -> None:  # noqa: N803  # systemd-python's name
        sent.append(MESSAGE)

    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "w") as stream:
        status = os.fstat(stream.fileno())
        environ = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        style = configure_logging("json", stream=stream, environ=environ, journal=lambda: send)
        early.info("setpoint_written", tag="FIC-101.SP")

    assert style == "journald"
    assert sent == ["setpoint_written component=early tag=FIC-101.SP"]


def test_a_stream_that_is_not_the_journals_is_not_mistaken_for_it() -> None:
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "w") as stream:
        assert configure_logging("auto", stream=stream, environ={"JOURNAL_STREAM": "1:2"}) == "json"
