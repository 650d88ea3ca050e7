"""The paper's algorithms on blocks of codes. Nothing here ever sees a raw value."""
