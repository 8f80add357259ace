"""The database of the tests, which is made when the application is imported."""

import os
from tempfile import TemporaryDirectory

folder = TemporaryDirectory(prefix="shop-")
# Not that of the process which has started this one: pytest-xdist starts several.
os.environ["SHOP_DATABASE"] = f"sqlite:///{folder.name}/shop.db"
