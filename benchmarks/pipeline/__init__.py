"""What the pipeline itself can carry with an engine that costs nothing, beside plain Celery on the same rows.

`__main__` asks each side in turn: `fleet` (this project), `celery_rows` and `celery_batches` (what people write).
"""
