"""A shop: each order is saved with the job of its receipt, in one transaction.

    uvicorn shop:app                     the application
    holdfast worker shop:queue           sends the receipts
    SHOP_THREADS=2 uvicorn shop:app      both in one process, for development

Its database is shop.db, or that of SHOP_DATABASE, such as postgresql://host/shop.
"""

import os
from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import holdfast
from holdfast.contrib.fastapi import lifespan

DATABASE = os.environ.get("SHOP_DATABASE", "sqlite:///shop.db")
engine = create_engine(DATABASE.replace("postgresql:", "postgresql+psycopg:"))
queue = holdfast.connect(DATABASE)
app = FastAPI(lifespan=lifespan(queue, threads=int(os.environ.get("SHOP_THREADS", "0"))))


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
    """Save an order, and add the job of its receipt: both, or neither. Its id is too long for JavaScript."""
    order = Order(email=email, item=item)
    session.add(order)
    session.flush()
    job = send_receipt.using(connection=session).add(order.id)
    session.commit()
    return {"order": order.id, "job": str(job.id)}


@app.get("/orders/{order_id}")
def show(order_id: int, session: DatabaseSession) -> dict[str, str | None]:
    """An order, and its receipt if that is sent."""
    order = session.get(Order, order_id)
    if order is None:
        raise HTTPException(404)
    return {"item": order.item, "receipt": order.receipt}


@queue.task(attempts=5)
def send_receipt(order_id: int) -> str:
    """Send the receipt of an order."""
    with Session(engine) as session, session.begin():
        order = session.get_one(Order, order_id)
        order.receipt = f"Dear {order.email}, your {order.item} is on its way."
        return order.email


@queue.task(cron="0 6 * * *")
def count_orders() -> int:
    """The daily report."""
    with Session(engine) as session:
        return session.query(Order).count()
