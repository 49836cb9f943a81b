"""The product as others build and install it: sdist and wheel, other interpreters and flags, other Sparks, releases."""
