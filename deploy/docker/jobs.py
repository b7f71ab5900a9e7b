"""The application of the image: replace it by your own."""

from holdfast import Holdfast

app = Holdfast()  # HOLDFAST_STORE


@app.task
async def greet(name: str) -> str:
    """Return a greeting."""
    return f"hello {name}"
