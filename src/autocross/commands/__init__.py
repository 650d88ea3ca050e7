"""The commands of the program, one module for each group of them. They are thin: the library does the work."""
