"""The database of the tests, which is made when the application is imported."""

import os
from tempfile import TemporaryDirectory

folder = TemporaryDirectory(prefix="shop-")
os.environ.setdefault("SHOP_DATABASE", f"sqlite:///{folder.name}/shop.db")
