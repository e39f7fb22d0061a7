"""Things to run and to copy: the demo, and how its model is made."""
