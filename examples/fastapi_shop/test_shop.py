"""Tests of the shop: jobs are in memory, and orders in a database of `conftest.py`."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from shop import app, queue, send_receipt
from sqlalchemy.orm import Session

from holdfast import testing

TEA = {"email": "ada@example.com", "item": "tea"}


@pytest.fixture
def client() -> Iterator[TestClient]:
    """The application, with its queue in memory."""
    with testing.in_memory(queue), TestClient(app) as client:
        yield client


def test_an_order_gets_its_receipt(client: TestClient) -> None:
    """From the request to the job that it added."""
    order = client.post("/orders", params=TEA).json()["order"]
    testing.assert_added(queue, send_receipt, order_id=order)

    assert [run.result for run in testing.run_due(queue)] == ["ada@example.com"]

    reply = client.get(f"/orders/{order}").json()
    assert reply == {"item": "tea", "receipt": "Dear ada@example.com, your tea is on its way."}


def test_an_order_that_cannot_be_saved_leaves_no_job(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is rolled back is not there."""

    def commit(_session: Session) -> None:
        raise ConnectionError

    monkeypatch.setattr(Session, "commit", commit)
    with pytest.raises(ConnectionError):
        client.post("/orders", params=TEA)

    assert testing.added(queue) == []
