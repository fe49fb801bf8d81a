"""Model zoo: importing modules, resolving names, checking names that code uses."""
