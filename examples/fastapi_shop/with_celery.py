"""The same shop with Celery and Redis, to compare. A process that ends after its commit adds no job.

uvicorn with_celery:app
celery --app with_celery worker
celery --app with_celery beat
"""

import os
from collections.abc import Iterator
from typing import Annotated

from celery import Celery
from celery.schedules import crontab
from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

DATABASE = os.environ.get("SHOP_DATABASE", "sqlite:///shop.db")
REDIS = os.environ.get("SHOP_REDIS", "redis://127.0.0.1/0")
engine = create_engine(DATABASE.replace("postgresql:", "postgresql+psycopg:"))
celery = Celery("shop", broker=REDIS, backend=REDIS)
celery.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    beat_schedule={"count_orders": {"task": "shop.count_orders", "schedule": crontab("0", "6")}},
)
app = FastAPI()


class Base(DeclarativeBase):
    """The tables."""


class Order(Base):
    """An order, and its receipt once that is sent."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    item: Mapped[str]
    receipt: Mapped[str | None]


Base.metadata.create_all(engine)


def open_session() -> Iterator[Session]:
    """A session for each request."""
    with Session(engine) as session:
        yield session


DatabaseSession = Annotated[Session, Depends(open_session)]


@app.post("/orders", status_code=201)
def create(email: str, item: str, session: DatabaseSession) -> dict[str, int | str]:
    """Save an order, and then add the job of its receipt."""
    order = Order(email=email, item=item)
    session.add(order)
    session.commit()
    job = send_receipt.delay(order.id)
    return {"order": order.id, "job": job.id}


@app.get("/orders/{order_id}")
def show(order_id: int, session: DatabaseSession) -> dict[str, str | None]:
    """An order, and its receipt if that is sent."""
    order = session.get(Order, order_id)
    if order is None:
        raise HTTPException(404)
    return {"item": order.item, "receipt": order.receipt}


@celery.task(name="shop.send_receipt", autoretry_for=(Exception,), max_retries=4, retry_backoff=True)
def send_receipt(order_id: int) -> str:
    """Send the receipt of an order."""
    with Session(engine) as session, session.begin():
        order = session.get_one(Order, order_id)
        order.receipt = f"Dear {order.email}, your {order.item} is on its way."
        return order.email


@celery.task(name="shop.count_orders")
def count_orders() -> int:
    """The daily report."""
    with Session(engine) as session:
        return session.query(Order).count()
