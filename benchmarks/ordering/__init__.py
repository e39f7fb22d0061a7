"""What another order of work brings: the time of a job whose answers differ in length, and hits in the prefix cache."""
