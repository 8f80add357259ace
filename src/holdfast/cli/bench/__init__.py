"""The measures of `holdfast bench`, through the public API, on temporary stores."""
