"""Types that only C code may instantiate."""

cdef extern from "kafkaprod/_core/machine/machine.h":
    # Make `Type()` and `Type.__new__(Type)` raise TypeError in Python. Called once, below the class, by its own module;
    # the class is created by `Type.__new__(Type)` in that module only.
    int forbid_new "kp_forbid_new"(object type_object) except -1
