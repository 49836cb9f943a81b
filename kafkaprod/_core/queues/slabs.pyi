# Nothing here is for Python: it is called from compiled code only, by `cimport`.
