"""What crosses a process boundary, nothing else: both sides import it or it moves out."""
